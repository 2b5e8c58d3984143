define internal void @tile1(ptr %arguments, ptr %node, i1 %first, ptr %x, ptr %y, ptr %segments, i64 %segment_count, ptr %tap) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 136
  %v2 = load ptr, ptr %v1, align 1
  %v3 = getelementptr i8, ptr %arguments, i64 104
  %v4 = load ptr, ptr %v3, align 1
  %v5 = getelementptr i8, ptr %arguments, i64 112
  %v6 = load ptr, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %arguments, i64 384
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %arguments, i64 408
  %v10 = load i64, ptr %v9, align 1
  %v11 = getelementptr i8, ptr %arguments, i64 416
  %v12 = load i64, ptr %v11, align 1
  %v13 = getelementptr i8, ptr %arguments, i64 216
  %v14 = load i64, ptr %v13, align 1
  %v15 = getelementptr i8, ptr %arguments, i64 320
  %v16 = load i64, ptr %v15, align 1
  %v17 = getelementptr i8, ptr %arguments, i64 224
  %v18 = load i64, ptr %v17, align 1
  %v19 = getelementptr i8, ptr %arguments, i64 328
  %v20 = load i64, ptr %v19, align 1
  %v21 = load i64, ptr %tap, align 1
  %v22 = getelementptr i8, ptr %tap, i64 8
  %v23 = load i64, ptr %v22, align 1
  %v24 = getelementptr i8, ptr %tap, i64 16
  %v25 = load i64, ptr %v24, align 1
  %v26 = getelementptr i8, ptr %tap, i64 24
  %v27 = load i64, ptr %v26, align 1
  %v28 = add i64 %v23, 1
  %v29 = mul i64 %v23, 24
  %v30 = getelementptr i8, ptr %v4, i64 %v29
  %v31 = mul i64 %v28, 24
  %v32 = getelementptr i8, ptr %v4, i64 %v31
  %v33 = load i64, ptr %v30, align 1
  %v34 = getelementptr i8, ptr %v30, i64 8
  %v35 = load i64, ptr %v34, align 1
  %v36 = getelementptr i8, ptr %v30, i64 16
  %v37 = load i64, ptr %v36, align 1
  br label %loop38
loop38:
  %loop38.index = phi i64 [ 0, %entry ], [ %v93, %loop76.end ]
  %loop38.segment = phi ptr [ %segments, %entry ], [ %v92, %loop76.end ]
  %loop38.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop76.sum0_0_0, %loop76.end ]
  %loop38.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop76.sum0_1_0, %loop76.end ]
  %loop38.more = icmp slt i64 %loop38.index, %segment_count
  br i1 %loop38.more, label %loop38.body, label %loop38.end
loop38.body:
  %v39 = load i64, ptr %loop38.segment, align 1
  %v40 = getelementptr i8, ptr %loop38.segment, i64 8
  %v41 = load i64, ptr %v40, align 1
  %v42 = getelementptr i8, ptr %loop38.segment, i64 16
  %v43 = load i64, ptr %v42, align 1
  %v44 = getelementptr i8, ptr %loop38.segment, i64 24
  %v45 = load i64, ptr %v44, align 1
  %v46 = getelementptr i8, ptr %loop38.segment, i64 32
  %v47 = load i64, ptr %v46, align 1
  %v48 = getelementptr i8, ptr %loop38.segment, i64 40
  %v49 = load i64, ptr %v48, align 1
  %v50 = getelementptr i8, ptr %loop38.segment, i64 48
  %v51 = load i64, ptr %v50, align 1
  %v52 = getelementptr i8, ptr %v2, i64 %v27
  %v53 = getelementptr i8, ptr %v52, i64 %v47
  %v54 = load i64, ptr %v53, align 1
  %v55 = icmp eq i64 %v54, 9223372036854775807
  %v56 = select i1 %v55, i64 %v41, i64 %v43
  %v57 = icmp eq i64 %v54, 9223372036854775807
  %v58 = select i1 %v57, i64 %v54, i64 %v54
  %v59 = add i64 %v58, %v21
  %v60 = call i64 @llvm.smax.i64(i64 %v41, i64 %v33)
  %v61 = call i64 @llvm.smin.i64(i64 %v56, i64 %v35)
  %v62 = sub i64 %v61, %v60
  %v63 = icmp ne i64 %v10, 0
  %v64 = select i1 %v63, i64 %v45, i64 %v59
  %v65 = select i1 %v63, i64 %v59, i64 %v45
  %v66 = mul i64 %v39, %v14
  %v67 = add i64 %v66, %v64
  %v68 = mul i64 %v60, %v18
  %v69 = add i64 %v67, %v68
  %v70 = getelementptr i8, ptr %x, i64 %v69
  %v71 = mul i64 %v39, %v16
  %v72 = add i64 %v71, %v65
  %v73 = mul i64 %v60, %v20
  %v74 = add i64 %v72, %v73
  %v75 = getelementptr i8, ptr %y, i64 %v74
  br label %loop76
loop76:
  %loop76.index = phi i64 [ 0, %loop38.body ], [ %v91, %loop76.body ]
  %loop76.x0 = phi ptr [ %v70, %loop38.body ], [ %v89, %loop76.body ]
  %loop76.y0 = phi ptr [ %v75, %loop38.body ], [ %v90, %loop76.body ]
  %loop76.sum0_0_0 = phi <4 x float> [ %loop38.sum0_0_0, %loop38.body ], [ %v83, %loop76.body ]
  %loop76.sum0_1_0 = phi <4 x float> [ %loop38.sum0_1_0, %loop38.body ], [ %v88, %loop76.body ]
  %loop76.more = icmp slt i64 %loop76.index, %v62
  br i1 %loop76.more, label %loop76.body, label %loop76.end
loop76.body:
  %v77 = load <4 x float>, ptr %loop76.y0, align 1
  %v78 = mul i64 %v20, 8
  %v79 = getelementptr i8, ptr %loop76.y0, i64 %v78
  call void @llvm.prefetch.p0(ptr %v79, i32 0, i32 3, i32 1)
  %v80 = load float, ptr %loop76.x0, align 1
  %v81 = insertelement <4 x float> poison, float %v80, i64 0
  %v82 = shufflevector <4 x float> %v81, <4 x float> poison, <4 x i32> zeroinitializer
  %v83 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v82, <4 x float> %v77, <4 x float> %loop76.sum0_0_0)
  %v84 = getelementptr i8, ptr %loop76.x0, i64 4
  %v85 = load float, ptr %v84, align 1
  %v86 = insertelement <4 x float> poison, float %v85, i64 0
  %v87 = shufflevector <4 x float> %v86, <4 x float> poison, <4 x i32> zeroinitializer
  %v88 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v87, <4 x float> %v77, <4 x float> %loop76.sum0_1_0)
  %v89 = getelementptr i8, ptr %loop76.x0, i64 %v18
  %v90 = getelementptr i8, ptr %loop76.y0, i64 %v20
  %v91 = add i64 %loop76.index, 1
  br label %loop76
loop76.end:
  %v92 = getelementptr i8, ptr %loop38.segment, i64 56
  %v93 = add i64 %loop38.index, 1
  br label %loop38
loop38.end:
  %v94 = getelementptr i8, ptr %node, i64 16
  br i1 %first, label %when95, label %when95.else
when95:
  store <4 x float> %loop38.sum0_0_0, ptr %node, align 1
  store <4 x float> %loop38.sum0_1_0, ptr %v94, align 1
  br label %when95.end
when95.else:
  %v96 = load <4 x float>, ptr %node, align 1
  %v97 = fadd <4 x float> %v96, %loop38.sum0_0_0
  store <4 x float> %v97, ptr %node, align 1
  %v98 = load <4 x float>, ptr %v94, align 1
  %v99 = fadd <4 x float> %v98, %loop38.sum0_1_0
  store <4 x float> %v99, ptr %v94, align 1
  br label %when95.end
when95.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

