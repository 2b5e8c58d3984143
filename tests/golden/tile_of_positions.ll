define internal void @tile2_1(ptr %arguments, ptr %sums, ptr %runs, ptr %blocks, i64 %count, ptr %data, ptr %weights, ptr %out, ptr %bias, i64 %row_step, i64 %out_step, ptr %next, i64 %rate, i64 %left, i64 %skip, i64 %bias_step, i1 %begins, i1 %ends) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 216
  %v2 = load i64, ptr %v1, align 1
  %v3 = mul i64 %v2, 32
  %v4 = getelementptr i8, ptr %sums, i64 %v3
  br i1 %begins, label %when5, label %when5.end
when5:
  store i64 0, ptr %v4, align 1
  br label %when5.end
when5.end:
  %v6 = sub i64 %count, 1
  %v7 = select i1 %ends, i64 %v6, i64 %count
  br label %loop8
loop8:
  %loop8.index = phi i64 [ 0, %when5.end ], [ %v62, %when41.end ]
  %loop8.block = phi ptr [ %blocks, %when5.end ], [ %v61, %when41.end ]
  %loop8.run = phi ptr [ %runs, %when5.end ], [ %loop11.run, %when41.end ]
  %loop8.ahead = phi ptr [ %next, %when5.end ], [ %loop11.ahead, %when41.end ]
  %loop8.sum0_0 = phi <4 x float> [ zeroinitializer, %when5.end ], [ %loop11.sum0_0, %when41.end ]
  %loop8.sum1_0 = phi <4 x float> [ zeroinitializer, %when5.end ], [ %loop11.sum1_0, %when41.end ]
  %loop8.more = icmp slt i64 %loop8.index, %count
  br i1 %loop8.more, label %loop8.body, label %loop8.end
loop8.body:
  %v9 = getelementptr i8, ptr %loop8.block, i64 8
  %v10 = load i64, ptr %v9, align 1
  br label %loop11
loop11:
  %loop11.index = phi i64 [ 0, %loop8.body ], [ %v39, %loop22.end ]
  %loop11.run = phi ptr [ %loop8.run, %loop8.body ], [ %v38, %loop22.end ]
  %loop11.ahead = phi ptr [ %loop8.ahead, %loop8.body ], [ %loop22.ahead, %loop22.end ]
  %loop11.sum0_0 = phi <4 x float> [ zeroinitializer, %loop8.body ], [ %loop22.sum0_0, %loop22.end ]
  %loop11.sum1_0 = phi <4 x float> [ zeroinitializer, %loop8.body ], [ %loop22.sum1_0, %loop22.end ]
  %loop11.more = icmp slt i64 %loop11.index, %v10
  br i1 %loop11.more, label %loop11.body, label %loop11.end
loop11.body:
  %v12 = load i64, ptr %loop11.run, align 1
  %v13 = getelementptr i8, ptr %loop11.run, i64 8
  %v14 = load i64, ptr %v13, align 1
  %v15 = getelementptr i8, ptr %loop11.run, i64 16
  %v16 = load i64, ptr %v15, align 1
  %v17 = getelementptr i8, ptr %data, i64 %v12
  %v18 = mul i64 %row_step, 0
  %v19 = getelementptr i8, ptr %v17, i64 %v18
  %v20 = getelementptr i8, ptr %weights, i64 %v14
  %v21 = call i64 asm "", "=r,0"(i64 %row_step)
  br label %loop22
loop22:
  %loop22.index = phi i64 [ 0, %loop11.body ], [ %v37, %loop22.body ]
  %loop22.x0 = phi ptr [ %v19, %loop11.body ], [ %v35, %loop22.body ]
  %loop22.w = phi ptr [ %v20, %loop11.body ], [ %v34, %loop22.body ]
  %loop22.ahead = phi ptr [ %loop11.ahead, %loop11.body ], [ %v36, %loop22.body ]
  %loop22.sum0_0 = phi <4 x float> [ %loop11.sum0_0, %loop11.body ], [ %v28, %loop22.body ]
  %loop22.sum1_0 = phi <4 x float> [ %loop11.sum1_0, %loop11.body ], [ %v33, %loop22.body ]
  %loop22.more = icmp slt i64 %loop22.index, %v16
  br i1 %loop22.more, label %loop22.body, label %loop22.end
loop22.body:
  %v23 = load <4 x float>, ptr %loop22.w, align 1
  %v24 = call ptr asm "", "=r,0"(ptr %loop22.x0)
  %v25 = load float, ptr %v24, align 1
  %v26 = insertelement <4 x float> poison, float %v25, i64 0
  %v27 = shufflevector <4 x float> %v26, <4 x float> poison, <4 x i32> zeroinitializer
  %v28 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v27, <4 x float> %v23, <4 x float> %loop22.sum0_0)
  %v29 = getelementptr i8, ptr %v24, i64 %v21
  %v30 = load float, ptr %v29, align 1
  %v31 = insertelement <4 x float> poison, float %v30, i64 0
  %v32 = shufflevector <4 x float> %v31, <4 x float> poison, <4 x i32> zeroinitializer
  %v33 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v32, <4 x float> %v23, <4 x float> %loop22.sum1_0)
  %v34 = getelementptr i8, ptr %loop22.w, i64 16
  call void @llvm.prefetch.p0(ptr %loop22.ahead, i32 0, i32 3, i32 1)
  %v35 = getelementptr i8, ptr %loop22.x0, i64 4
  %v36 = getelementptr i8, ptr %loop22.ahead, i64 %rate
  %v37 = add i64 %loop22.index, 1
  br label %loop22
loop22.end:
  %v38 = getelementptr i8, ptr %loop11.run, i64 24
  %v39 = add i64 %loop11.index, 1
  br label %loop11
loop11.end:
  %v40 = icmp slt i64 %loop8.index, %v7
  br i1 %v40, label %when41, label %when41.end
when41:
  %v42 = load i64, ptr %v4, align 1
  %v43 = and i64 %v42, 1
  %v44 = icmp eq i64 %v43, 0
  br i1 %v44, label %when45, label %when45.else
when45:
  store <4 x float> %loop11.sum0_0, ptr %sums, align 1
  %v46 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop11.sum1_0, ptr %v46, align 1
  br label %when45.end
when45.else:
  %v47 = load <4 x float>, ptr %sums, align 1
  %v48 = fadd <4 x float> %v47, %loop11.sum0_0
  store <4 x float> %v48, ptr %sums, align 1
  %v49 = getelementptr i8, ptr %sums, i64 16
  %v50 = load <4 x float>, ptr %v49, align 1
  %v51 = fadd <4 x float> %v50, %loop11.sum1_0
  %v52 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %v51, ptr %v52, align 1
  br label %when45.end
when45.end:
  %v53 = or i64 %v42, 1
  store i64 %v53, ptr %v4, align 1
  %v54 = load i64, ptr %loop8.block, align 1
  %v55 = getelementptr i8, ptr %loop8.block, i64 24
  %v56 = load i64, ptr %v55, align 1
  %v57 = xor i64 %v54, %v56
  %v58 = lshr i64 %v57, 4
  %v59 = icmp ne i64 %v58, 0
  br i1 %v59, label %when60, label %when60.end
when60:
  call void @climb(ptr %arguments, ptr %sums, i64 32, i64 %v57, ptr %v4)
  br label %when60.end
when60.end:
  br label %when41.end
when41.end:
  %v61 = getelementptr i8, ptr %loop8.block, i64 24
  %v62 = add i64 %loop8.index, 1
  br label %loop8
loop8.end:
  br i1 %ends, label %when63, label %when63.end
when63:
  %v64 = getelementptr i8, ptr %loop8.block, i64 -24
  %v65 = getelementptr i8, ptr %arguments, i64 344
  %v66 = load i64, ptr %v65, align 1
  %v67 = icmp eq i64 %v66, 0
  %v68 = icmp sge i64 %left, 4
  %v69 = and i1 %v67, %v68
  %v70 = icmp slt i64 %count, 2
  %v71 = and i1 %begins, %v70
  br i1 %v71, label %when72, label %when72.else
when72:
  br i1 %v69, label %when73, label %when73.else
when73:
  %v74 = load <4 x float>, ptr %bias, align 1
  %v75 = fadd <4 x float> %loop8.sum0_0, zeroinitializer
  %v76 = fadd <4 x float> %v75, %v74
  %v77 = fcmp uno <4 x float> %v76, %v76
  %v78 = select <4 x i1> %v77, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v76
  store <4 x float> %v78, ptr %out, align 1
  %v79 = getelementptr i8, ptr %out, i64 %out_step
  %v80 = fadd <4 x float> %loop8.sum1_0, zeroinitializer
  %v81 = fadd <4 x float> %v80, %v74
  %v82 = fcmp uno <4 x float> %v81, %v81
  %v83 = select <4 x i1> %v82, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v81
  store <4 x float> %v83, ptr %v79, align 1
  br label %when73.end
when73.else:
  store <4 x float> %loop8.sum0_0, ptr %sums, align 1
  %v84 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop8.sum1_0, ptr %v84, align 1
  call void @finish(ptr %arguments, ptr %sums, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when73.end
when73.end:
  br label %when72.end
when72.else:
  %v85 = getelementptr i8, ptr %arguments, i64 216
  %v86 = load i64, ptr %v85, align 1
  %v87 = icmp eq i64 %v86, 1
  %v88 = and i1 %v69, %v87
  br i1 %v88, label %when89, label %when89.else
when89:
  %v90 = load <4 x float>, ptr %sums, align 1
  %v91 = fadd <4 x float> %v90, %loop8.sum0_0
  %v92 = getelementptr i8, ptr %sums, i64 16
  %v93 = load <4 x float>, ptr %v92, align 1
  %v94 = fadd <4 x float> %v93, %loop8.sum1_0
  %v95 = load <4 x float>, ptr %bias, align 1
  %v96 = fadd <4 x float> %v91, zeroinitializer
  %v97 = fadd <4 x float> %v96, %v95
  %v98 = fcmp uno <4 x float> %v97, %v97
  %v99 = select <4 x i1> %v98, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v97
  store <4 x float> %v99, ptr %out, align 1
  %v100 = getelementptr i8, ptr %out, i64 %out_step
  %v101 = fadd <4 x float> %v94, zeroinitializer
  %v102 = fadd <4 x float> %v101, %v95
  %v103 = fcmp uno <4 x float> %v102, %v102
  %v104 = select <4 x i1> %v103, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v102
  store <4 x float> %v104, ptr %v100, align 1
  br label %when89.end
when89.else:
  %v105 = load i64, ptr %v4, align 1
  %v106 = and i64 %v105, 1
  %v107 = icmp eq i64 %v106, 0
  br i1 %v107, label %when108, label %when108.else
when108:
  store <4 x float> %loop8.sum0_0, ptr %sums, align 1
  %v109 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop8.sum1_0, ptr %v109, align 1
  br label %when108.end
when108.else:
  %v110 = load <4 x float>, ptr %sums, align 1
  %v111 = fadd <4 x float> %v110, %loop8.sum0_0
  store <4 x float> %v111, ptr %sums, align 1
  %v112 = getelementptr i8, ptr %sums, i64 16
  %v113 = load <4 x float>, ptr %v112, align 1
  %v114 = fadd <4 x float> %v113, %loop8.sum1_0
  %v115 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %v114, ptr %v115, align 1
  br label %when108.end
when108.end:
  %v116 = or i64 %v105, 1
  store i64 %v116, ptr %v4, align 1
  %v117 = load i64, ptr %v64, align 1
  %v118 = getelementptr i8, ptr %v64, i64 24
  %v119 = load i64, ptr %v118, align 1
  %v120 = xor i64 %v117, %v119
  %v121 = lshr i64 %v120, 4
  %v122 = icmp ne i64 %v121, 0
  br i1 %v122, label %when123, label %when123.end
when123:
  call void @climb(ptr %arguments, ptr %sums, i64 32, i64 %v120, ptr %v4)
  br label %when123.end
when123.end:
  %v124 = getelementptr i8, ptr %arguments, i64 216
  %v125 = load i64, ptr %v124, align 1
  %v126 = sub i64 %v125, 1
  %v127 = mul i64 %v126, 32
  %v128 = getelementptr i8, ptr %sums, i64 %v127
  call void @finish(ptr %arguments, ptr %v128, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when89.end
when89.end:
  br label %when72.end
when72.end:
  br label %when63.end
when63.end:
  ret void
}

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

