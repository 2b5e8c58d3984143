define internal void @tile1(ptr %arguments, ptr %node, i1 %first, ptr %x, ptr %y, i64 %images, ptr %segments, i64 %segment_count, ptr %tap) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 128
  %v2 = load ptr, ptr %v1, align 1
  %v3 = getelementptr i8, ptr %arguments, i64 96
  %v4 = load ptr, ptr %v3, align 1
  %v5 = getelementptr i8, ptr %arguments, i64 104
  %v6 = load ptr, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %arguments, i64 352
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %arguments, i64 376
  %v10 = load i64, ptr %v9, align 1
  %v11 = getelementptr i8, ptr %arguments, i64 384
  %v12 = load i64, ptr %v11, align 1
  %v13 = getelementptr i8, ptr %arguments, i64 200
  %v14 = load i64, ptr %v13, align 1
  %v15 = getelementptr i8, ptr %arguments, i64 296
  %v16 = load i64, ptr %v15, align 1
  %v17 = getelementptr i8, ptr %arguments, i64 208
  %v18 = load i64, ptr %v17, align 1
  %v19 = getelementptr i8, ptr %arguments, i64 304
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
  %loop38.index = phi i64 [ 0, %entry ], [ %v87, %loop39.end ]
  %loop38.x = phi ptr [ %x, %entry ], [ %v85, %loop39.end ]
  %loop38.y = phi ptr [ %y, %entry ], [ %v86, %loop39.end ]
  %loop38.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop39.sum0_0_0, %loop39.end ]
  %loop38.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop39.sum0_1_0, %loop39.end ]
  %loop38.more = icmp slt i64 %loop38.index, %images
  br i1 %loop38.more, label %loop38.body, label %loop38.end
loop38.body:
  br label %loop39
loop39:
  %loop39.index = phi i64 [ 0, %loop38.body ], [ %v84, %loop67.end ]
  %loop39.segment = phi ptr [ %segments, %loop38.body ], [ %v83, %loop67.end ]
  %loop39.sum0_0_0 = phi <4 x float> [ %loop38.sum0_0_0, %loop38.body ], [ %loop67.sum0_0_0, %loop67.end ]
  %loop39.sum0_1_0 = phi <4 x float> [ %loop38.sum0_1_0, %loop38.body ], [ %loop67.sum0_1_0, %loop67.end ]
  %loop39.more = icmp slt i64 %loop39.index, %segment_count
  br i1 %loop39.more, label %loop39.body, label %loop39.end
loop39.body:
  %v40 = load i64, ptr %loop39.segment, align 1
  %v41 = getelementptr i8, ptr %loop39.segment, i64 8
  %v42 = load i64, ptr %v41, align 1
  %v43 = getelementptr i8, ptr %loop39.segment, i64 16
  %v44 = load i64, ptr %v43, align 1
  %v45 = getelementptr i8, ptr %loop39.segment, i64 24
  %v46 = load i64, ptr %v45, align 1
  %v47 = getelementptr i8, ptr %v2, i64 %v27
  %v48 = getelementptr i8, ptr %v47, i64 %v46
  %v49 = load i64, ptr %v48, align 1
  %v50 = icmp eq i64 %v49, -9223372036854775808
  %v51 = select i1 %v50, i64 %v40, i64 %v42
  %v52 = icmp eq i64 %v49, -9223372036854775808
  %v53 = select i1 %v52, i64 %v49, i64 %v49
  %v54 = add i64 %v53, %v21
  %v55 = call i64 @llvm.smax.i64(i64 %v40, i64 %v33)
  %v56 = call i64 @llvm.smin.i64(i64 %v51, i64 %v35)
  %v57 = sub i64 %v56, %v55
  %v58 = icmp ne i64 %v10, 0
  %v59 = select i1 %v58, i64 %v44, i64 %v54
  %v60 = select i1 %v58, i64 %v54, i64 %v44
  %v61 = mul i64 %v55, %v18
  %v62 = add i64 %v59, %v61
  %v63 = getelementptr i8, ptr %loop38.x, i64 %v62
  %v64 = mul i64 %v55, %v20
  %v65 = add i64 %v60, %v64
  %v66 = getelementptr i8, ptr %loop38.y, i64 %v65
  br label %loop67
loop67:
  %loop67.index = phi i64 [ 0, %loop39.body ], [ %v82, %loop67.body ]
  %loop67.x0 = phi ptr [ %v63, %loop39.body ], [ %v80, %loop67.body ]
  %loop67.y0 = phi ptr [ %v66, %loop39.body ], [ %v81, %loop67.body ]
  %loop67.sum0_0_0 = phi <4 x float> [ %loop39.sum0_0_0, %loop39.body ], [ %v74, %loop67.body ]
  %loop67.sum0_1_0 = phi <4 x float> [ %loop39.sum0_1_0, %loop39.body ], [ %v79, %loop67.body ]
  %loop67.more = icmp slt i64 %loop67.index, %v57
  br i1 %loop67.more, label %loop67.body, label %loop67.end
loop67.body:
  %v68 = load <4 x float>, ptr %loop67.y0, align 1
  %v69 = mul i64 %v20, 8
  %v70 = getelementptr i8, ptr %loop67.y0, i64 %v69
  call void @llvm.prefetch.p0(ptr %v70, i32 0, i32 3, i32 1)
  %v71 = load float, ptr %loop67.x0, align 1
  %v72 = insertelement <4 x float> poison, float %v71, i64 0
  %v73 = shufflevector <4 x float> %v72, <4 x float> poison, <4 x i32> zeroinitializer
  %v74 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v73, <4 x float> %v68, <4 x float> %loop67.sum0_0_0)
  %v75 = getelementptr i8, ptr %loop67.x0, i64 4
  %v76 = load float, ptr %v75, align 1
  %v77 = insertelement <4 x float> poison, float %v76, i64 0
  %v78 = shufflevector <4 x float> %v77, <4 x float> poison, <4 x i32> zeroinitializer
  %v79 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v78, <4 x float> %v68, <4 x float> %loop67.sum0_1_0)
  %v80 = getelementptr i8, ptr %loop67.x0, i64 %v18
  %v81 = getelementptr i8, ptr %loop67.y0, i64 %v20
  %v82 = add i64 %loop67.index, 1
  br label %loop67
loop67.end:
  %v83 = getelementptr i8, ptr %loop39.segment, i64 32
  %v84 = add i64 %loop39.index, 1
  br label %loop39
loop39.end:
  %v85 = getelementptr i8, ptr %loop38.x, i64 %v14
  %v86 = getelementptr i8, ptr %loop38.y, i64 %v16
  %v87 = add i64 %loop38.index, 1
  br label %loop38
loop38.end:
  %v88 = getelementptr i8, ptr %node, i64 16
  br i1 %first, label %when89, label %when89.else
when89:
  store <4 x float> %loop38.sum0_0_0, ptr %node, align 1
  store <4 x float> %loop38.sum0_1_0, ptr %v88, align 1
  br label %when89.end
when89.else:
  %v90 = load <4 x float>, ptr %node, align 1
  %v91 = fadd <4 x float> %v90, %loop38.sum0_0_0
  store <4 x float> %v91, ptr %node, align 1
  %v92 = load <4 x float>, ptr %v88, align 1
  %v93 = fadd <4 x float> %v92, %loop38.sum0_1_0
  store <4 x float> %v93, ptr %v88, align 1
  br label %when89.end
when89.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

