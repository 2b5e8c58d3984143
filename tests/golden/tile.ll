define internal void @tile1(ptr %arguments, ptr %partial, i1 %first, ptr %x, ptr %y, i64 %images, ptr %lines_at, i64 %line_count, ptr %tap) #0 {
entry:
  %v1 = load i64, ptr %tap, align 1
  %v2 = getelementptr i8, ptr %tap, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %tap, i64 16
  %v5 = load i64, ptr %v4, align 1
  %v6 = getelementptr i8, ptr %tap, i64 24
  %v7 = load i64, ptr %v6, align 1
  %v8 = getelementptr i8, ptr %tap, i64 32
  %v9 = load i64, ptr %v8, align 1
  %v10 = getelementptr i8, ptr %tap, i64 40
  %v11 = load i64, ptr %v10, align 1
  %v12 = getelementptr i8, ptr %arguments, i64 216
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 312
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 224
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %arguments, i64 320
  %v19 = load i64, ptr %v18, align 1
  %v20 = getelementptr i8, ptr %arguments, i64 368
  %v21 = load i64, ptr %v20, align 1
  %v22 = getelementptr i8, ptr %arguments, i64 400
  %v23 = load i64, ptr %v22, align 1
  %v24 = getelementptr i8, ptr %arguments, i64 128
  %v25 = load ptr, ptr %v24, align 1
  %v26 = getelementptr i8, ptr %arguments, i64 136
  %v27 = load ptr, ptr %v26, align 1
  %v28 = mul i64 %v1, 8
  %v29 = getelementptr i8, ptr %v27, i64 %v28
  %v30 = load i64, ptr %v29, align 1
  %v31 = getelementptr i8, ptr %v25, i64 %v30
  %v32 = getelementptr i8, ptr %arguments, i64 104
  %v33 = load ptr, ptr %v32, align 1
  %v34 = getelementptr i8, ptr %arguments, i64 432
  %v35 = load i64, ptr %v34, align 1
  %v36 = getelementptr i8, ptr %arguments, i64 392
  %v37 = load i64, ptr %v36, align 1
  %v38 = getelementptr i8, ptr %arguments, i64 96
  %v39 = load ptr, ptr %v38, align 1
  %v40 = mul i64 %v7, 24
  %v41 = getelementptr i8, ptr %v39, i64 %v40
  %v42 = getelementptr i8, ptr %arguments, i64 96
  %v43 = load ptr, ptr %v42, align 1
  %v44 = mul i64 %v9, 24
  %v45 = getelementptr i8, ptr %v43, i64 %v44
  %v46 = load i64, ptr %v41, align 1
  %v47 = getelementptr i8, ptr %v41, i64 8
  %v48 = load i64, ptr %v47, align 1
  %v49 = getelementptr i8, ptr %v41, i64 16
  %v50 = load i64, ptr %v49, align 1
  br label %loop51
loop51:
  %loop51.index = phi i64 [ 0, %entry ], [ %v98, %loop52.end ]
  %loop51.x = phi ptr [ %x, %entry ], [ %v96, %loop52.end ]
  %loop51.y = phi ptr [ %y, %entry ], [ %v97, %loop52.end ]
  %loop51.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop52.sum0_0_0, %loop52.end ]
  %loop51.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop52.sum0_1_0, %loop52.end ]
  %loop51.more = icmp slt i64 %loop51.index, %images
  br i1 %loop51.more, label %loop51.body, label %loop51.end
loop51.body:
  br label %loop52
loop52:
  %loop52.index = phi i64 [ 0, %loop51.body ], [ %v95, %loop78.end ]
  %loop52.line = phi ptr [ %lines_at, %loop51.body ], [ %v94, %loop78.end ]
  %loop52.sum0_0_0 = phi <4 x float> [ %loop51.sum0_0_0, %loop51.body ], [ %loop78.sum0_0_0, %loop78.end ]
  %loop52.sum0_1_0 = phi <4 x float> [ %loop51.sum0_1_0, %loop51.body ], [ %loop78.sum0_1_0, %loop78.end ]
  %loop52.more = icmp slt i64 %loop52.index, %line_count
  br i1 %loop52.more, label %loop52.body, label %loop52.end
loop52.body:
  %v53 = load i64, ptr %loop52.line, align 1
  %v54 = getelementptr i8, ptr %loop52.line, i64 8
  %v55 = load i64, ptr %v54, align 1
  %v56 = getelementptr i8, ptr %loop52.line, i64 16
  %v57 = load i64, ptr %v56, align 1
  %v58 = getelementptr i8, ptr %loop52.line, i64 24
  %v59 = load i64, ptr %v58, align 1
  %v60 = getelementptr i8, ptr %v31, i64 %v59
  %v61 = load i64, ptr %v60, align 1
  %v62 = icmp eq i64 %v61, -9223372036854775808
  %v63 = select i1 %v62, i64 %v53, i64 %v55
  %v64 = icmp eq i64 %v61, -9223372036854775808
  %v65 = select i1 %v64, i64 %v61, i64 %v61
  %v66 = call i64 @llvm.smax.i64(i64 %v53, i64 %v46)
  %v67 = call i64 @llvm.smin.i64(i64 %v63, i64 %v48)
  %v68 = sub i64 %v67, %v66
  %v69 = icmp ne i64 %v37, 0
  %v70 = select i1 %v69, i64 %v57, i64 %v65
  %v71 = select i1 %v69, i64 %v65, i64 %v57
  %v72 = mul i64 %v66, %v17
  %v73 = add i64 %v70, %v72
  %v74 = getelementptr i8, ptr %loop51.x, i64 %v73
  %v75 = mul i64 %v66, %v19
  %v76 = add i64 %v71, %v75
  %v77 = getelementptr i8, ptr %loop51.y, i64 %v76
  br label %loop78
loop78:
  %loop78.index = phi i64 [ 0, %loop52.body ], [ %v93, %loop78.body ]
  %loop78.x0 = phi ptr [ %v74, %loop52.body ], [ %v91, %loop78.body ]
  %loop78.y0 = phi ptr [ %v77, %loop52.body ], [ %v92, %loop78.body ]
  %loop78.sum0_0_0 = phi <4 x float> [ %loop52.sum0_0_0, %loop52.body ], [ %v85, %loop78.body ]
  %loop78.sum0_1_0 = phi <4 x float> [ %loop52.sum0_1_0, %loop52.body ], [ %v90, %loop78.body ]
  %loop78.more = icmp slt i64 %loop78.index, %v68
  br i1 %loop78.more, label %loop78.body, label %loop78.end
loop78.body:
  %v79 = load <4 x float>, ptr %loop78.y0, align 1
  %v80 = mul i64 %v19, 8
  %v81 = getelementptr i8, ptr %loop78.y0, i64 %v80
  call void @llvm.prefetch.p0(ptr %v81, i32 0, i32 3, i32 1)
  %v82 = load float, ptr %loop78.x0, align 1
  %v83 = insertelement <4 x float> poison, float %v82, i64 0
  %v84 = shufflevector <4 x float> %v83, <4 x float> poison, <4 x i32> zeroinitializer
  %v85 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v84, <4 x float> %v79, <4 x float> %loop78.sum0_0_0)
  %v86 = getelementptr i8, ptr %loop78.x0, i64 4
  %v87 = load float, ptr %v86, align 1
  %v88 = insertelement <4 x float> poison, float %v87, i64 0
  %v89 = shufflevector <4 x float> %v88, <4 x float> poison, <4 x i32> zeroinitializer
  %v90 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v89, <4 x float> %v79, <4 x float> %loop78.sum0_1_0)
  %v91 = getelementptr i8, ptr %loop78.x0, i64 %v17
  %v92 = getelementptr i8, ptr %loop78.y0, i64 %v19
  %v93 = add i64 %loop78.index, 1
  br label %loop78
loop78.end:
  %v94 = getelementptr i8, ptr %loop52.line, i64 32
  %v95 = add i64 %loop52.index, 1
  br label %loop52
loop52.end:
  %v96 = getelementptr i8, ptr %loop51.x, i64 %v13
  %v97 = getelementptr i8, ptr %loop51.y, i64 %v15
  %v98 = add i64 %loop51.index, 1
  br label %loop51
loop51.end:
  %v99 = getelementptr i8, ptr %partial, i64 16
  br i1 %first, label %when100, label %when100.else
when100:
  store <4 x float> %loop51.sum0_0_0, ptr %partial, align 1
  store <4 x float> %loop51.sum0_1_0, ptr %v99, align 1
  br label %when100.end
when100.else:
  %v101 = load <4 x float>, ptr %partial, align 1
  %v102 = fadd <4 x float> %v101, %loop51.sum0_0_0
  store <4 x float> %v102, ptr %partial, align 1
  %v103 = load <4 x float>, ptr %v99, align 1
  %v104 = fadd <4 x float> %v103, %loop51.sum0_1_0
  store <4 x float> %v104, ptr %v99, align 1
  br label %when100.end
when100.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

