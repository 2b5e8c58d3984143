define internal void @tile1(ptr %partial, i1 %first, ptr %x, ptr %y, i64 %images, i64 %x_image, i64 %y_image, ptr %runs, i64 %run_count, i64 %low, i64 %high, i64 %x_step, i64 %y_step, i64 %x_next) #0 {
entry:
  br label %loop1
loop1:
  %loop1.index = phi i64 [ 0, %entry ], [ %v39, %loop2.end ]
  %loop1.x = phi ptr [ %x, %entry ], [ %v37, %loop2.end ]
  %loop1.y = phi ptr [ %y, %entry ], [ %v38, %loop2.end ]
  %loop1.sum0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop2.sum0_0, %loop2.end ]
  %loop1.sum1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop2.sum1_0, %loop2.end ]
  %loop1.more = icmp slt i64 %loop1.index, %images
  br i1 %loop1.more, label %loop1.body, label %loop1.end
loop1.body:
  br label %loop2
loop2:
  %loop2.index = phi i64 [ 0, %loop1.body ], [ %v36, %loop19.end ]
  %loop2.run = phi ptr [ %runs, %loop1.body ], [ %v35, %loop19.end ]
  %loop2.sum0_0 = phi <4 x float> [ %loop1.sum0_0, %loop1.body ], [ %loop19.sum0_0, %loop19.end ]
  %loop2.sum1_0 = phi <4 x float> [ %loop1.sum1_0, %loop1.body ], [ %loop19.sum1_0, %loop19.end ]
  %loop2.more = icmp slt i64 %loop2.index, %run_count
  br i1 %loop2.more, label %loop2.body, label %loop2.end
loop2.body:
  %v3 = getelementptr i8, ptr %loop2.run, i64 16
  %v4 = load i64, ptr %v3, align 1
  %v5 = call i64 @llvm.smax.i64(i64 %v4, i64 %low)
  %v6 = getelementptr i8, ptr %loop2.run, i64 24
  %v7 = load i64, ptr %v6, align 1
  %v8 = call i64 @llvm.smin.i64(i64 %v7, i64 %high)
  %v9 = sub i64 %v8, %v5
  %v10 = load i64, ptr %loop2.run, align 1
  %v11 = mul i64 %v5, %x_step
  %v12 = add i64 %v10, %v11
  %v13 = getelementptr i8, ptr %loop1.x, i64 %v12
  %v14 = getelementptr i8, ptr %loop2.run, i64 8
  %v15 = load i64, ptr %v14, align 1
  %v16 = mul i64 %v5, %y_step
  %v17 = add i64 %v15, %v16
  %v18 = getelementptr i8, ptr %loop1.y, i64 %v17
  br label %loop19
loop19:
  %loop19.index = phi i64 [ 0, %loop2.body ], [ %v34, %loop19.body ]
  %loop19.x = phi ptr [ %v13, %loop2.body ], [ %v32, %loop19.body ]
  %loop19.y = phi ptr [ %v18, %loop2.body ], [ %v33, %loop19.body ]
  %loop19.sum0_0 = phi <4 x float> [ %loop2.sum0_0, %loop2.body ], [ %v26, %loop19.body ]
  %loop19.sum1_0 = phi <4 x float> [ %loop2.sum1_0, %loop2.body ], [ %v31, %loop19.body ]
  %loop19.more = icmp slt i64 %loop19.index, %v9
  br i1 %loop19.more, label %loop19.body, label %loop19.end
loop19.body:
  %v20 = load <4 x float>, ptr %loop19.y, align 1
  %v21 = mul i64 %y_step, 8
  %v22 = getelementptr i8, ptr %loop19.y, i64 %v21
  call void @llvm.prefetch.p0(ptr %v22, i32 0, i32 3, i32 1)
  %v23 = load float, ptr %loop19.x, align 1
  %v24 = insertelement <4 x float> poison, float %v23, i64 0
  %v25 = shufflevector <4 x float> %v24, <4 x float> poison, <4 x i32> zeroinitializer
  %v26 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v25, <4 x float> %v20, <4 x float> %loop19.sum0_0)
  %v27 = getelementptr i8, ptr %loop19.x, i64 4
  %v28 = load float, ptr %v27, align 1
  %v29 = insertelement <4 x float> poison, float %v28, i64 0
  %v30 = shufflevector <4 x float> %v29, <4 x float> poison, <4 x i32> zeroinitializer
  %v31 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v30, <4 x float> %v20, <4 x float> %loop19.sum1_0)
  %v32 = getelementptr i8, ptr %loop19.x, i64 %x_step
  %v33 = getelementptr i8, ptr %loop19.y, i64 %y_step
  %v34 = add i64 %loop19.index, 1
  br label %loop19
loop19.end:
  %v35 = getelementptr i8, ptr %loop2.run, i64 32
  %v36 = add i64 %loop2.index, 1
  br label %loop2
loop2.end:
  %v37 = getelementptr i8, ptr %loop1.x, i64 %x_image
  %v38 = getelementptr i8, ptr %loop1.y, i64 %y_image
  %v39 = add i64 %loop1.index, 1
  br label %loop1
loop1.end:
  br i1 %first, label %when40, label %when40.else
when40:
  store <4 x float> %loop1.sum0_0, ptr %partial, align 1
  %v41 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %loop1.sum1_0, ptr %v41, align 1
  br label %when40.end
when40.else:
  %v42 = load <4 x float>, ptr %partial, align 1
  %v43 = fadd <4 x float> %v42, %loop1.sum0_0
  store <4 x float> %v43, ptr %partial, align 1
  %v44 = getelementptr i8, ptr %partial, i64 16
  %v45 = load <4 x float>, ptr %v44, align 1
  %v46 = fadd <4 x float> %v45, %loop1.sum1_0
  %v47 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %v46, ptr %v47, align 1
  br label %when40.end
when40.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

