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
  %v12 = getelementptr i8, ptr %arguments, i64 224
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 320
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 232
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %arguments, i64 328
  %v19 = load i64, ptr %v18, align 1
  %v20 = getelementptr i8, ptr %arguments, i64 376
  %v21 = load i64, ptr %v20, align 1
  %v22 = getelementptr i8, ptr %arguments, i64 408
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
  %v34 = getelementptr i8, ptr %arguments, i64 440
  %v35 = load i64, ptr %v34, align 1
  %v36 = getelementptr i8, ptr %arguments, i64 400
  %v37 = load i64, ptr %v36, align 1
  %v38 = getelementptr i8, ptr %arguments, i64 184
  %v39 = load i64, ptr %v38, align 1
  %v40 = getelementptr i8, ptr %arguments, i64 96
  %v41 = load ptr, ptr %v40, align 1
  %v42 = mul i64 %v7, 24
  %v43 = getelementptr i8, ptr %v41, i64 %v42
  %v44 = getelementptr i8, ptr %arguments, i64 96
  %v45 = load ptr, ptr %v44, align 1
  %v46 = mul i64 %v9, 24
  %v47 = getelementptr i8, ptr %v45, i64 %v46
  %v48 = load i64, ptr %v43, align 1
  %v49 = getelementptr i8, ptr %v43, i64 8
  %v50 = load i64, ptr %v49, align 1
  %v51 = getelementptr i8, ptr %v43, i64 16
  %v52 = load i64, ptr %v51, align 1
  br label %loop53
loop53:
  %loop53.index = phi i64 [ 0, %entry ], [ %v100, %loop54.end ]
  %loop53.x = phi ptr [ %x, %entry ], [ %v98, %loop54.end ]
  %loop53.y = phi ptr [ %y, %entry ], [ %v99, %loop54.end ]
  %loop53.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop54.sum0_0_0, %loop54.end ]
  %loop53.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop54.sum0_1_0, %loop54.end ]
  %loop53.more = icmp slt i64 %loop53.index, %images
  br i1 %loop53.more, label %loop53.body, label %loop53.end
loop53.body:
  br label %loop54
loop54:
  %loop54.index = phi i64 [ 0, %loop53.body ], [ %v97, %loop80.end ]
  %loop54.line = phi ptr [ %lines_at, %loop53.body ], [ %v96, %loop80.end ]
  %loop54.sum0_0_0 = phi <4 x float> [ %loop53.sum0_0_0, %loop53.body ], [ %loop80.sum0_0_0, %loop80.end ]
  %loop54.sum0_1_0 = phi <4 x float> [ %loop53.sum0_1_0, %loop53.body ], [ %loop80.sum0_1_0, %loop80.end ]
  %loop54.more = icmp slt i64 %loop54.index, %line_count
  br i1 %loop54.more, label %loop54.body, label %loop54.end
loop54.body:
  %v55 = load i64, ptr %loop54.line, align 1
  %v56 = getelementptr i8, ptr %loop54.line, i64 8
  %v57 = load i64, ptr %v56, align 1
  %v58 = getelementptr i8, ptr %loop54.line, i64 16
  %v59 = load i64, ptr %v58, align 1
  %v60 = getelementptr i8, ptr %loop54.line, i64 24
  %v61 = load i64, ptr %v60, align 1
  %v62 = getelementptr i8, ptr %v31, i64 %v61
  %v63 = load i64, ptr %v62, align 1
  %v64 = icmp eq i64 %v63, -9223372036854775808
  %v65 = select i1 %v64, i64 %v55, i64 %v57
  %v66 = icmp eq i64 %v63, -9223372036854775808
  %v67 = select i1 %v66, i64 %v63, i64 %v63
  %v68 = call i64 @llvm.smax.i64(i64 %v55, i64 %v48)
  %v69 = call i64 @llvm.smin.i64(i64 %v65, i64 %v50)
  %v70 = sub i64 %v69, %v68
  %v71 = icmp ne i64 %v37, 0
  %v72 = select i1 %v71, i64 %v59, i64 %v67
  %v73 = select i1 %v71, i64 %v67, i64 %v59
  %v74 = mul i64 %v68, %v17
  %v75 = add i64 %v72, %v74
  %v76 = getelementptr i8, ptr %loop53.x, i64 %v75
  %v77 = mul i64 %v68, %v19
  %v78 = add i64 %v73, %v77
  %v79 = getelementptr i8, ptr %loop53.y, i64 %v78
  br label %loop80
loop80:
  %loop80.index = phi i64 [ 0, %loop54.body ], [ %v95, %loop80.body ]
  %loop80.x0 = phi ptr [ %v76, %loop54.body ], [ %v93, %loop80.body ]
  %loop80.y0 = phi ptr [ %v79, %loop54.body ], [ %v94, %loop80.body ]
  %loop80.sum0_0_0 = phi <4 x float> [ %loop54.sum0_0_0, %loop54.body ], [ %v87, %loop80.body ]
  %loop80.sum0_1_0 = phi <4 x float> [ %loop54.sum0_1_0, %loop54.body ], [ %v92, %loop80.body ]
  %loop80.more = icmp slt i64 %loop80.index, %v70
  br i1 %loop80.more, label %loop80.body, label %loop80.end
loop80.body:
  %v81 = load <4 x float>, ptr %loop80.y0, align 1
  %v82 = mul i64 %v19, 8
  %v83 = getelementptr i8, ptr %loop80.y0, i64 %v82
  call void @llvm.prefetch.p0(ptr %v83, i32 0, i32 3, i32 1)
  %v84 = load float, ptr %loop80.x0, align 1
  %v85 = insertelement <4 x float> poison, float %v84, i64 0
  %v86 = shufflevector <4 x float> %v85, <4 x float> poison, <4 x i32> zeroinitializer
  %v87 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v86, <4 x float> %v81, <4 x float> %loop80.sum0_0_0)
  %v88 = getelementptr i8, ptr %loop80.x0, i64 %v39
  %v89 = load float, ptr %v88, align 1
  %v90 = insertelement <4 x float> poison, float %v89, i64 0
  %v91 = shufflevector <4 x float> %v90, <4 x float> poison, <4 x i32> zeroinitializer
  %v92 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v91, <4 x float> %v81, <4 x float> %loop80.sum0_1_0)
  %v93 = getelementptr i8, ptr %loop80.x0, i64 %v17
  %v94 = getelementptr i8, ptr %loop80.y0, i64 %v19
  %v95 = add i64 %loop80.index, 1
  br label %loop80
loop80.end:
  %v96 = getelementptr i8, ptr %loop54.line, i64 32
  %v97 = add i64 %loop54.index, 1
  br label %loop54
loop54.end:
  %v98 = getelementptr i8, ptr %loop53.x, i64 %v13
  %v99 = getelementptr i8, ptr %loop53.y, i64 %v15
  %v100 = add i64 %loop53.index, 1
  br label %loop53
loop53.end:
  br i1 %first, label %when101, label %when101.else
when101:
  store <4 x float> %loop53.sum0_0_0, ptr %partial, align 1
  %v102 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %loop53.sum0_1_0, ptr %v102, align 1
  br label %when101.end
when101.else:
  %v103 = load <4 x float>, ptr %partial, align 1
  %v104 = fadd <4 x float> %v103, %loop53.sum0_0_0
  store <4 x float> %v104, ptr %partial, align 1
  %v105 = getelementptr i8, ptr %partial, i64 16
  %v106 = load <4 x float>, ptr %v105, align 1
  %v107 = fadd <4 x float> %v106, %loop53.sum0_1_0
  %v108 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %v107, ptr %v108, align 1
  br label %when101.end
when101.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

