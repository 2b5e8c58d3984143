define internal void @tile1(ptr %partial, i1 %first, ptr %x, ptr %y, i64 %images, i64 %x_image, i64 %y_image, ptr %lines_at, i64 %line_count, ptr %places, ptr %shifts, i64 %mask_bytes, i64 %swapped, ptr %whole, ptr %segments, i64 %segment_count, ptr %masks, i64 %x_step, i64 %y_step, i64 %tap_step, i64 %x_next) #0 {
entry:
  %v1 = load i64, ptr %whole, align 1
  %v2 = getelementptr i8, ptr %whole, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %whole, i64 16
  %v5 = load i64, ptr %v4, align 1
  %v6 = load i64, ptr %shifts, align 1
  %v7 = getelementptr i8, ptr %places, i64 %v6
  br label %loop8
loop8:
  %loop8.index = phi i64 [ 0, %entry ], [ %v55, %loop9.end ]
  %loop8.x = phi ptr [ %x, %entry ], [ %v53, %loop9.end ]
  %loop8.y = phi ptr [ %y, %entry ], [ %v54, %loop9.end ]
  %loop8.sum0_0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop9.sum0_0_0, %loop9.end ]
  %loop8.sum0_1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop9.sum0_1_0, %loop9.end ]
  %loop8.more = icmp slt i64 %loop8.index, %images
  br i1 %loop8.more, label %loop8.body, label %loop8.end
loop8.body:
  br label %loop9
loop9:
  %loop9.index = phi i64 [ 0, %loop8.body ], [ %v52, %loop35.end ]
  %loop9.line = phi ptr [ %lines_at, %loop8.body ], [ %v51, %loop35.end ]
  %loop9.sum0_0_0 = phi <4 x float> [ %loop8.sum0_0_0, %loop8.body ], [ %loop35.sum0_0_0, %loop35.end ]
  %loop9.sum0_1_0 = phi <4 x float> [ %loop8.sum0_1_0, %loop8.body ], [ %loop35.sum0_1_0, %loop35.end ]
  %loop9.more = icmp slt i64 %loop9.index, %line_count
  br i1 %loop9.more, label %loop9.body, label %loop9.end
loop9.body:
  %v10 = load i64, ptr %loop9.line, align 1
  %v11 = getelementptr i8, ptr %loop9.line, i64 8
  %v12 = load i64, ptr %v11, align 1
  %v13 = getelementptr i8, ptr %loop9.line, i64 16
  %v14 = load i64, ptr %v13, align 1
  %v15 = getelementptr i8, ptr %loop9.line, i64 24
  %v16 = load i64, ptr %v15, align 1
  %v17 = getelementptr i8, ptr %v7, i64 %v16
  %v18 = load i64, ptr %v17, align 1
  %v19 = icmp eq i64 %v18, -9223372036854775808
  %v20 = select i1 %v19, i64 %v10, i64 %v12
  %v21 = icmp eq i64 %v18, -9223372036854775808
  %v22 = select i1 %v21, i64 %v18, i64 %v18
  %v23 = call i64 @llvm.smax.i64(i64 %v10, i64 %v1)
  %v24 = call i64 @llvm.smin.i64(i64 %v20, i64 %v3)
  %v25 = sub i64 %v24, %v23
  %v26 = icmp ne i64 %swapped, 0
  %v27 = select i1 %v26, i64 %v14, i64 %v22
  %v28 = select i1 %v26, i64 %v22, i64 %v14
  %v29 = mul i64 %v23, %x_step
  %v30 = add i64 %v27, %v29
  %v31 = getelementptr i8, ptr %loop8.x, i64 %v30
  %v32 = mul i64 %v23, %y_step
  %v33 = add i64 %v28, %v32
  %v34 = getelementptr i8, ptr %loop8.y, i64 %v33
  br label %loop35
loop35:
  %loop35.index = phi i64 [ 0, %loop9.body ], [ %v50, %loop35.body ]
  %loop35.x0 = phi ptr [ %v31, %loop9.body ], [ %v48, %loop35.body ]
  %loop35.y0 = phi ptr [ %v34, %loop9.body ], [ %v49, %loop35.body ]
  %loop35.sum0_0_0 = phi <4 x float> [ %loop9.sum0_0_0, %loop9.body ], [ %v42, %loop35.body ]
  %loop35.sum0_1_0 = phi <4 x float> [ %loop9.sum0_1_0, %loop9.body ], [ %v47, %loop35.body ]
  %loop35.more = icmp slt i64 %loop35.index, %v25
  br i1 %loop35.more, label %loop35.body, label %loop35.end
loop35.body:
  %v36 = load <4 x float>, ptr %loop35.y0, align 1
  %v37 = mul i64 %y_step, 8
  %v38 = getelementptr i8, ptr %loop35.y0, i64 %v37
  call void @llvm.prefetch.p0(ptr %v38, i32 0, i32 3, i32 1)
  %v39 = load float, ptr %loop35.x0, align 1
  %v40 = insertelement <4 x float> poison, float %v39, i64 0
  %v41 = shufflevector <4 x float> %v40, <4 x float> poison, <4 x i32> zeroinitializer
  %v42 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v41, <4 x float> %v36, <4 x float> %loop35.sum0_0_0)
  %v43 = getelementptr i8, ptr %loop35.x0, i64 4
  %v44 = load float, ptr %v43, align 1
  %v45 = insertelement <4 x float> poison, float %v44, i64 0
  %v46 = shufflevector <4 x float> %v45, <4 x float> poison, <4 x i32> zeroinitializer
  %v47 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v46, <4 x float> %v36, <4 x float> %loop35.sum0_1_0)
  %v48 = getelementptr i8, ptr %loop35.x0, i64 %x_step
  %v49 = getelementptr i8, ptr %loop35.y0, i64 %y_step
  %v50 = add i64 %loop35.index, 1
  br label %loop35
loop35.end:
  %v51 = getelementptr i8, ptr %loop9.line, i64 32
  %v52 = add i64 %loop9.index, 1
  br label %loop9
loop9.end:
  %v53 = getelementptr i8, ptr %loop8.x, i64 %x_image
  %v54 = getelementptr i8, ptr %loop8.y, i64 %y_image
  %v55 = add i64 %loop8.index, 1
  br label %loop8
loop8.end:
  br i1 %first, label %when56, label %when56.else
when56:
  store <4 x float> %loop8.sum0_0_0, ptr %partial, align 1
  %v57 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %loop8.sum0_1_0, ptr %v57, align 1
  br label %when56.end
when56.else:
  %v58 = load <4 x float>, ptr %partial, align 1
  %v59 = fadd <4 x float> %v58, %loop8.sum0_0_0
  store <4 x float> %v59, ptr %partial, align 1
  %v60 = getelementptr i8, ptr %partial, i64 16
  %v61 = load <4 x float>, ptr %v60, align 1
  %v62 = fadd <4 x float> %v61, %loop8.sum0_1_0
  %v63 = getelementptr i8, ptr %partial, i64 16
  store <4 x float> %v62, ptr %v63, align 1
  br label %when56.end
when56.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

