define internal void @tile2_1(ptr %arguments, ptr %sums, ptr %runs, ptr %blocks, i64 %count, ptr %data, ptr %weights, ptr %out, ptr %bias, i64 %row_step, i64 %out_step, ptr %next, i64 %rate, i64 %left, i64 %skip, i64 %bias_step) #0 {
entry:
  %v1 = alloca i64, align 8
  store i64 0, ptr %v1, align 1
  br label %loop2
loop2:
  %loop2.index = phi i64 [ 0, %entry ], [ %v57, %when36.end ]
  %loop2.block = phi ptr [ %blocks, %entry ], [ %v56, %when36.end ]
  %loop2.run = phi ptr [ %runs, %entry ], [ %loop5.run, %when36.end ]
  %loop2.ahead = phi ptr [ %next, %entry ], [ %loop5.ahead, %when36.end ]
  %loop2.sum0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop5.sum0_0, %when36.end ]
  %loop2.sum1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop5.sum1_0, %when36.end ]
  %loop2.more = icmp slt i64 %loop2.index, %count
  br i1 %loop2.more, label %loop2.body, label %loop2.end
loop2.body:
  %v3 = getelementptr i8, ptr %loop2.block, i64 8
  %v4 = load i64, ptr %v3, align 1
  br label %loop5
loop5:
  %loop5.index = phi i64 [ 0, %loop2.body ], [ %v33, %loop16.end ]
  %loop5.run = phi ptr [ %loop2.run, %loop2.body ], [ %v32, %loop16.end ]
  %loop5.ahead = phi ptr [ %loop2.ahead, %loop2.body ], [ %loop16.ahead, %loop16.end ]
  %loop5.sum0_0 = phi <4 x float> [ zeroinitializer, %loop2.body ], [ %loop16.sum0_0, %loop16.end ]
  %loop5.sum1_0 = phi <4 x float> [ zeroinitializer, %loop2.body ], [ %loop16.sum1_0, %loop16.end ]
  %loop5.more = icmp slt i64 %loop5.index, %v4
  br i1 %loop5.more, label %loop5.body, label %loop5.end
loop5.body:
  %v6 = load i64, ptr %loop5.run, align 1
  %v7 = getelementptr i8, ptr %loop5.run, i64 8
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %loop5.run, i64 16
  %v10 = load i64, ptr %v9, align 1
  %v11 = call i64 asm "", "=r,0"(i64 %row_step)
  %v12 = getelementptr i8, ptr %data, i64 %v6
  %v13 = mul i64 %row_step, 0
  %v14 = getelementptr i8, ptr %v12, i64 %v13
  %v15 = getelementptr i8, ptr %weights, i64 %v8
  br label %loop16
loop16:
  %loop16.index = phi i64 [ 0, %loop5.body ], [ %v31, %loop16.body ]
  %loop16.x0 = phi ptr [ %v14, %loop5.body ], [ %v28, %loop16.body ]
  %loop16.w = phi ptr [ %v15, %loop5.body ], [ %v29, %loop16.body ]
  %loop16.ahead = phi ptr [ %loop5.ahead, %loop5.body ], [ %v30, %loop16.body ]
  %loop16.sum0_0 = phi <4 x float> [ %loop5.sum0_0, %loop5.body ], [ %v22, %loop16.body ]
  %loop16.sum1_0 = phi <4 x float> [ %loop5.sum1_0, %loop5.body ], [ %v27, %loop16.body ]
  %loop16.more = icmp slt i64 %loop16.index, %v10
  br i1 %loop16.more, label %loop16.body, label %loop16.end
loop16.body:
  %v17 = load <4 x float>, ptr %loop16.w, align 1
  %v18 = call ptr asm "", "=r,0"(ptr %loop16.x0)
  %v19 = load float, ptr %v18, align 1
  %v20 = insertelement <4 x float> poison, float %v19, i64 0
  %v21 = shufflevector <4 x float> %v20, <4 x float> poison, <4 x i32> zeroinitializer
  %v22 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v21, <4 x float> %v17, <4 x float> %loop16.sum0_0)
  %v23 = getelementptr i8, ptr %v18, i64 %v11
  %v24 = load float, ptr %v23, align 1
  %v25 = insertelement <4 x float> poison, float %v24, i64 0
  %v26 = shufflevector <4 x float> %v25, <4 x float> poison, <4 x i32> zeroinitializer
  %v27 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v26, <4 x float> %v17, <4 x float> %loop16.sum1_0)
  call void @llvm.prefetch.p0(ptr %loop16.ahead, i32 0, i32 3, i32 1)
  %v28 = getelementptr i8, ptr %loop16.x0, i64 4
  %v29 = getelementptr i8, ptr %loop16.w, i64 16
  %v30 = getelementptr i8, ptr %loop16.ahead, i64 %rate
  %v31 = add i64 %loop16.index, 1
  br label %loop16
loop16.end:
  %v32 = getelementptr i8, ptr %loop5.run, i64 24
  %v33 = add i64 %loop5.index, 1
  br label %loop5
loop5.end:
  %v34 = sub i64 %count, 1
  %v35 = icmp slt i64 %loop2.index, %v34
  br i1 %v35, label %when36, label %when36.end
when36:
  %v37 = load i64, ptr %v1, align 1
  %v38 = and i64 %v37, 1
  %v39 = icmp eq i64 %v38, 0
  br i1 %v39, label %when40, label %when40.else
when40:
  store <4 x float> %loop5.sum0_0, ptr %sums, align 1
  %v41 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop5.sum1_0, ptr %v41, align 1
  br label %when40.end
when40.else:
  %v42 = load <4 x float>, ptr %sums, align 1
  %v43 = fadd <4 x float> %v42, %loop5.sum0_0
  store <4 x float> %v43, ptr %sums, align 1
  %v44 = getelementptr i8, ptr %sums, i64 16
  %v45 = load <4 x float>, ptr %v44, align 1
  %v46 = fadd <4 x float> %v45, %loop5.sum1_0
  %v47 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %v46, ptr %v47, align 1
  br label %when40.end
when40.end:
  %v48 = or i64 %v37, 1
  store i64 %v48, ptr %v1, align 1
  %v49 = load i64, ptr %loop2.block, align 1
  %v50 = getelementptr i8, ptr %loop2.block, i64 16
  %v51 = load i64, ptr %v50, align 1
  %v52 = xor i64 %v49, %v51
  %v53 = lshr i64 %v52, 4
  %v54 = icmp ne i64 %v53, 0
  br i1 %v54, label %when55, label %when55.end
when55:
  call void @climb(ptr %arguments, ptr %sums, i64 32, i64 %v52, ptr %v1)
  br label %when55.end
when55.end:
  br label %when36.end
when36.end:
  %v56 = getelementptr i8, ptr %loop2.block, i64 16
  %v57 = add i64 %loop2.index, 1
  br label %loop2
loop2.end:
  %v58 = getelementptr i8, ptr %loop2.block, i64 -16
  %v59 = getelementptr i8, ptr %arguments, i64 304
  %v60 = load i64, ptr %v59, align 1
  %v61 = icmp eq i64 %v60, 0
  %v62 = icmp sge i64 %left, 4
  %v63 = and i1 %v61, %v62
  %v64 = icmp slt i64 %count, 2
  br i1 %v64, label %when65, label %when65.else
when65:
  br i1 %v63, label %when66, label %when66.else
when66:
  %v67 = load <4 x float>, ptr %bias, align 1
  %v68 = fadd <4 x float> %loop2.sum0_0, zeroinitializer
  %v69 = fadd <4 x float> %v68, %v67
  %v70 = fcmp uno <4 x float> %v69, %v69
  %v71 = select <4 x i1> %v70, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v69
  store <4 x float> %v71, ptr %out, align 1
  %v72 = getelementptr i8, ptr %out, i64 %out_step
  %v73 = fadd <4 x float> %loop2.sum1_0, zeroinitializer
  %v74 = fadd <4 x float> %v73, %v67
  %v75 = fcmp uno <4 x float> %v74, %v74
  %v76 = select <4 x i1> %v75, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v74
  store <4 x float> %v76, ptr %v72, align 1
  br label %when66.end
when66.else:
  store <4 x float> %loop2.sum0_0, ptr %sums, align 1
  %v77 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop2.sum1_0, ptr %v77, align 1
  call void @finish(ptr %arguments, ptr %sums, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when66.end
when66.end:
  br label %when65.end
when65.else:
  %v78 = getelementptr i8, ptr %arguments, i64 208
  %v79 = load i64, ptr %v78, align 1
  %v80 = icmp eq i64 %v79, 1
  %v81 = and i1 %v63, %v80
  br i1 %v81, label %when82, label %when82.else
when82:
  %v83 = load <4 x float>, ptr %sums, align 1
  %v84 = fadd <4 x float> %v83, %loop2.sum0_0
  %v85 = getelementptr i8, ptr %sums, i64 16
  %v86 = load <4 x float>, ptr %v85, align 1
  %v87 = fadd <4 x float> %v86, %loop2.sum1_0
  %v88 = load <4 x float>, ptr %bias, align 1
  %v89 = fadd <4 x float> %v84, zeroinitializer
  %v90 = fadd <4 x float> %v89, %v88
  %v91 = fcmp uno <4 x float> %v90, %v90
  %v92 = select <4 x i1> %v91, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v90
  store <4 x float> %v92, ptr %out, align 1
  %v93 = getelementptr i8, ptr %out, i64 %out_step
  %v94 = fadd <4 x float> %v87, zeroinitializer
  %v95 = fadd <4 x float> %v94, %v88
  %v96 = fcmp uno <4 x float> %v95, %v95
  %v97 = select <4 x i1> %v96, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v95
  store <4 x float> %v97, ptr %v93, align 1
  br label %when82.end
when82.else:
  %v98 = load i64, ptr %v1, align 1
  %v99 = and i64 %v98, 1
  %v100 = icmp eq i64 %v99, 0
  br i1 %v100, label %when101, label %when101.else
when101:
  store <4 x float> %loop2.sum0_0, ptr %sums, align 1
  %v102 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop2.sum1_0, ptr %v102, align 1
  br label %when101.end
when101.else:
  %v103 = load <4 x float>, ptr %sums, align 1
  %v104 = fadd <4 x float> %v103, %loop2.sum0_0
  store <4 x float> %v104, ptr %sums, align 1
  %v105 = getelementptr i8, ptr %sums, i64 16
  %v106 = load <4 x float>, ptr %v105, align 1
  %v107 = fadd <4 x float> %v106, %loop2.sum1_0
  %v108 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %v107, ptr %v108, align 1
  br label %when101.end
when101.end:
  %v109 = or i64 %v98, 1
  store i64 %v109, ptr %v1, align 1
  %v110 = load i64, ptr %v58, align 1
  %v111 = getelementptr i8, ptr %v58, i64 16
  %v112 = load i64, ptr %v111, align 1
  %v113 = xor i64 %v110, %v112
  %v114 = lshr i64 %v113, 4
  %v115 = icmp ne i64 %v114, 0
  br i1 %v115, label %when116, label %when116.end
when116:
  call void @climb(ptr %arguments, ptr %sums, i64 32, i64 %v113, ptr %v1)
  br label %when116.end
when116.end:
  %v117 = getelementptr i8, ptr %arguments, i64 208
  %v118 = load i64, ptr %v117, align 1
  %v119 = sub i64 %v118, 1
  %v120 = mul i64 %v119, 32
  %v121 = getelementptr i8, ptr %sums, i64 %v120
  call void @finish(ptr %arguments, ptr %v121, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when82.end
when82.end:
  br label %when65.end
when65.end:
  ret void
}

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

