define internal void @tile1(ptr %partial, i1 %first, ptr %x, ptr %y, i64 %images, i64 %x_image, i64 %y_image, ptr %runs, i64 %run_count, ptr %whole, ptr %segments, i64 %segment_count, ptr %masks, i64 %x_step, i64 %y_step, i64 %tap_step, i64 %x_next) #0 {
entry:
  %v1 = load i64, ptr %whole, align 1
  %v2 = getelementptr i8, ptr %whole, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %whole, i64 16
  %v5 = load i64, ptr %v4, align 1
  br label %loop6
loop6:
  %loop6.index = phi i64 [ 0, %entry ], [ %v44, %loop7.end ]
  %loop6.x = phi ptr [ %x, %entry ], [ %v42, %loop7.end ]
  %loop6.y = phi ptr [ %y, %entry ], [ %v43, %loop7.end ]
  %loop6.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop7.sum0_0_0, %loop7.end ]
  %loop6.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop7.sum0_1_0, %loop7.end ]
  %loop6.more = icmp slt i64 %loop6.index, %images
  br i1 %loop6.more, label %loop6.body, label %loop6.end
loop6.body:
  br label %loop7
loop7:
  %loop7.index = phi i64 [ 0, %loop6.body ], [ %v41, %loop24.end ]
  %loop7.run = phi ptr [ %runs, %loop6.body ], [ %v40, %loop24.end ]
  %loop7.sum0_0_0 = phi <4 x float> [ %loop6.sum0_0_0, %loop6.body ], [ %loop24.sum0_0_0, %loop24.end ]
  %loop7.sum0_1_0 = phi <4 x float> [ %loop6.sum0_1_0, %loop6.body ], [ %loop24.sum0_1_0, %loop24.end ]
  %loop7.more = icmp slt i64 %loop7.index, %run_count
  br i1 %loop7.more, label %loop7.body, label %loop7.end
loop7.body:
  %v8 = load i64, ptr %loop7.run, align 1
  %v9 = call i64 @llvm.smax.i64(i64 %v8, i64 %v1)
  %v10 = getelementptr i8, ptr %loop7.run, i64 8
  %v11 = load i64, ptr %v10, align 1
  %v12 = call i64 @llvm.smin.i64(i64 %v11, i64 %v3)
  %v13 = sub i64 %v12, %v9
  %v14 = getelementptr i8, ptr %loop7.run, i64 24
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %loop7.run, i64 32
  %v17 = load i64, ptr %v16, align 1
  %v18 = mul i64 %v9, %x_step
  %v19 = add i64 %v17, %v18
  %v20 = getelementptr i8, ptr %loop6.x, i64 %v19
  %v21 = mul i64 %v9, %y_step
  %v22 = add i64 %v15, %v21
  %v23 = getelementptr i8, ptr %loop6.y, i64 %v22
  br label %loop24
loop24:
  %loop24.index = phi i64 [ 0, %loop7.body ], [ %v39, %loop24.body ]
  %loop24.x0 = phi ptr [ %v20, %loop7.body ], [ %v37, %loop24.body ]
  %loop24.y0 = phi ptr [ %v23, %loop7.body ], [ %v38, %loop24.body ]
  %loop24.sum0_0_0 = phi <4 x float> [ %loop7.sum0_0_0, %loop7.body ], [ %v31, %loop24.body ]
  %loop24.sum0_1_0 = phi <4 x float> [ %loop7.sum0_1_0, %loop7.body ], [ %v36, %loop24.body ]
  %loop24.more = icmp slt i64 %loop24.index, %v13
  br i1 %loop24.more, label %loop24.body, label %loop24.end
loop24.body:
  %v25 = load <4 x float>, ptr %loop24.y0, align 1
  %v26 = mul i64 %y_step, 8
  %v27 = getelementptr i8, ptr %loop24.y0, i64 %v26
  call void @llvm.prefetch.p0(ptr %v27, i32 0, i32 3, i32 1)
  %v28 = load float, ptr %loop24.x0, align 1
  %v29 = insertelement <4 x float> poison, float %v28, i64 0
  %v30 = shufflevector <4 x float> %v29, <4 x float> poison, <4 x i32> zeroinitializer
  %v31 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v30, <4 x float> %v25, <4 x float> %loop24.sum0_0_0)
  %v32 = getelementptr i8, ptr %loop24.x0, i64 4
  %v33 = load float, ptr %v32, align 1
  %v34 = insertelement <4 x float> poison, float %v33, i64 0
  %v35 = shufflevector <4 x float> %v34, <4 x float> poison, <4 x i32> zeroinitializer
  %v36 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v35, <4 x float> %v25, <4 x float> %loop24.sum0_1_0)
  %v37 = getelementptr i8, ptr %loop24.x0, i64 %x_step
  %v38 = getelementptr i8, ptr %loop24.y0, i64 %y_step
  %v39 = add i64 %loop24.index, 1
  br label %loop24
loop24.end:
  %v40 = getelementptr i8, ptr %loop7.run, i64 40
  %v41 = add i64 %loop7.index, 1
  br label %loop7
loop7.end:
  %v42 = getelementptr i8, ptr %loop6.x, i64 %x_image
  %v43 = getelementptr i8, ptr %loop6.y, i64 %y_image
  %v44 = add i64 %loop6.index, 1
  br label %loop6
loop6.end:
  br i1 %first, label %when45, label %when45.else
when45:
  store <4 x float> %loop6.sum0_0_0, ptr %partial, align 1
  %v46 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %loop6.sum0_1_0, ptr %v46, align 1
  br label %when45.end
when45.else:
  %v47 = load <4 x float>, ptr %partial, align 1
  %v48 = fadd <4 x float> %v47, %loop6.sum0_0_0
  store <4 x float> %v48, ptr %partial, align 1
  %v49 = getelementptr i8, ptr %partial, i64 16
  %v50 = load <4 x float>, ptr %v49, align 1
  %v51 = fadd <4 x float> %v50, %loop6.sum0_1_0
  %v52 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %v51, ptr %v52, align 1
  br label %when45.end
when45.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

