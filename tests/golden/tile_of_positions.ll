define internal void @tile2_1(ptr %arguments, ptr %sums, ptr %segments, ptr %chains, i64 %count, ptr %data, ptr %weights, ptr %out, ptr %bias, i64 %row_step, i64 %out_step, ptr %next, i64 %rate, i64 %left, i64 %skip, i64 %bias_step, i1 %begins, i1 %ends) #0 {
entry:
  %v1 = sub i64 %count, 1
  %v2 = select i1 %ends, i64 %v1, i64 %count
  br label %loop3
loop3:
  %loop3.index = phi i64 [ 0, %entry ], [ %v55, %when36.end ]
  %loop3.chain = phi ptr [ %chains, %entry ], [ %v54, %when36.end ]
  %loop3.segment = phi ptr [ %segments, %entry ], [ %loop6.segment, %when36.end ]
  %loop3.prefetched = phi ptr [ %next, %entry ], [ %loop6.prefetched, %when36.end ]
  %loop3.sum0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop6.sum0_0, %when36.end ]
  %loop3.sum1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop6.sum1_0, %when36.end ]
  %loop3.more = icmp slt i64 %loop3.index, %count
  br i1 %loop3.more, label %loop3.body, label %loop3.end
loop3.body:
  %v4 = getelementptr i8, ptr %loop3.chain, i64 8
  %v5 = load i64, ptr %v4, align 1
  br label %loop6
loop6:
  %loop6.index = phi i64 [ 0, %loop3.body ], [ %v34, %loop17.end ]
  %loop6.segment = phi ptr [ %loop3.segment, %loop3.body ], [ %v33, %loop17.end ]
  %loop6.prefetched = phi ptr [ %loop3.prefetched, %loop3.body ], [ %loop17.prefetched, %loop17.end ]
  %loop6.sum0_0 = phi <4 x float> [ zeroinitializer, %loop3.body ], [ %loop17.sum0_0, %loop17.end ]
  %loop6.sum1_0 = phi <4 x float> [ zeroinitializer, %loop3.body ], [ %loop17.sum1_0, %loop17.end ]
  %loop6.more = icmp slt i64 %loop6.index, %v5
  br i1 %loop6.more, label %loop6.body, label %loop6.end
loop6.body:
  %v7 = load i64, ptr %loop6.segment, align 1
  %v8 = getelementptr i8, ptr %loop6.segment, i64 8
  %v9 = load i64, ptr %v8, align 1
  %v10 = getelementptr i8, ptr %loop6.segment, i64 16
  %v11 = load i64, ptr %v10, align 1
  %v12 = call i64 asm "", "=r,0"(i64 %row_step)
  %v13 = getelementptr i8, ptr %data, i64 %v7
  %v14 = mul i64 %row_step, 0
  %v15 = getelementptr i8, ptr %v13, i64 %v14
  %v16 = getelementptr i8, ptr %weights, i64 %v9
  br label %loop17
loop17:
  %loop17.index = phi i64 [ 0, %loop6.body ], [ %v32, %loop17.body ]
  %loop17.a0 = phi ptr [ %v15, %loop6.body ], [ %v30, %loop17.body ]
  %loop17.w = phi ptr [ %v16, %loop6.body ], [ %v29, %loop17.body ]
  %loop17.prefetched = phi ptr [ %loop6.prefetched, %loop6.body ], [ %v31, %loop17.body ]
  %loop17.sum0_0 = phi <4 x float> [ %loop6.sum0_0, %loop6.body ], [ %v23, %loop17.body ]
  %loop17.sum1_0 = phi <4 x float> [ %loop6.sum1_0, %loop6.body ], [ %v28, %loop17.body ]
  %loop17.more = icmp slt i64 %loop17.index, %v11
  br i1 %loop17.more, label %loop17.body, label %loop17.end
loop17.body:
  %v18 = load <4 x float>, ptr %loop17.w, align 1
  %v19 = call ptr asm "", "=r,0"(ptr %loop17.a0)
  %v20 = load float, ptr %v19, align 1
  %v21 = insertelement <4 x float> poison, float %v20, i64 0
  %v22 = shufflevector <4 x float> %v21, <4 x float> poison, <4 x i32> zeroinitializer
  %v23 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v22, <4 x float> %v18, <4 x float> %loop17.sum0_0)
  %v24 = getelementptr i8, ptr %v19, i64 %v12
  %v25 = load float, ptr %v24, align 1
  %v26 = insertelement <4 x float> poison, float %v25, i64 0
  %v27 = shufflevector <4 x float> %v26, <4 x float> poison, <4 x i32> zeroinitializer
  %v28 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v27, <4 x float> %v18, <4 x float> %loop17.sum1_0)
  %v29 = getelementptr i8, ptr %loop17.w, i64 16
  call void @llvm.prefetch.p0(ptr %loop17.prefetched, i32 0, i32 3, i32 1)
  %v30 = getelementptr i8, ptr %loop17.a0, i64 4
  %v31 = getelementptr i8, ptr %loop17.prefetched, i64 %rate
  %v32 = add i64 %loop17.index, 1
  br label %loop17
loop17.end:
  %v33 = getelementptr i8, ptr %loop6.segment, i64 24
  %v34 = add i64 %loop6.index, 1
  br label %loop6
loop6.end:
  %v35 = icmp slt i64 %loop3.index, %v2
  br i1 %v35, label %when36, label %when36.end
when36:
  %v37 = load i64, ptr %loop3.chain, align 1
  %v38 = getelementptr i8, ptr %loop3.chain, i64 24
  %v39 = load i64, ptr %v38, align 1
  %v40 = getelementptr i8, ptr %sums, i64 16
  %v41 = and i64 %v37, 15
  %v42 = icmp eq i64 %v41, 0
  br i1 %v42, label %when43, label %when43.else
when43:
  store <4 x float> %loop6.sum0_0, ptr %sums, align 1
  store <4 x float> %loop6.sum1_0, ptr %v40, align 1
  br label %when43.end
when43.else:
  %v44 = load <4 x float>, ptr %sums, align 1
  %v45 = fadd <4 x float> %v44, %loop6.sum0_0
  store <4 x float> %v45, ptr %sums, align 1
  %v46 = load <4 x float>, ptr %v40, align 1
  %v47 = fadd <4 x float> %v46, %loop6.sum1_0
  store <4 x float> %v47, ptr %v40, align 1
  br label %when43.end
when43.end:
  %v48 = getelementptr i8, ptr %arguments, i64 216
  %v49 = load i64, ptr %v48, align 1
  %v50 = xor i64 %v37, %v39
  %v51 = lshr i64 %v50, 4
  %v52 = icmp ne i64 %v51, 0
  br i1 %v52, label %when53, label %when53.end
when53:
  call void @combine_up(ptr %sums, i64 32, i64 32, i64 %v49, i64 %v37, i64 %v39)
  br label %when53.end
when53.end:
  br label %when36.end
when36.end:
  %v54 = getelementptr i8, ptr %loop3.chain, i64 24
  %v55 = add i64 %loop3.index, 1
  br label %loop3
loop3.end:
  br i1 %ends, label %when56, label %when56.end
when56:
  %v57 = getelementptr i8, ptr %loop3.chain, i64 -24
  %v58 = getelementptr i8, ptr %arguments, i64 344
  %v59 = load i64, ptr %v58, align 1
  %v60 = icmp eq i64 %v59, 0
  %v61 = icmp sge i64 %left, 4
  %v62 = and i1 %v60, %v61
  %v63 = icmp slt i64 %count, 2
  %v64 = and i1 %begins, %v63
  br i1 %v64, label %when65, label %when65.else
when65:
  br i1 %v62, label %when66, label %when66.else
when66:
  %v67 = load <4 x float>, ptr %bias, align 1
  %v68 = fadd <4 x float> %loop3.sum0_0, zeroinitializer
  %v69 = fadd <4 x float> %v68, %v67
  %v70 = fcmp uno <4 x float> %v69, %v69
  %v71 = select <4 x i1> %v70, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v69
  store <4 x float> %v71, ptr %out, align 1
  %v72 = getelementptr i8, ptr %out, i64 %out_step
  %v73 = fadd <4 x float> %loop3.sum1_0, zeroinitializer
  %v74 = fadd <4 x float> %v73, %v67
  %v75 = fcmp uno <4 x float> %v74, %v74
  %v76 = select <4 x i1> %v75, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v74
  store <4 x float> %v76, ptr %v72, align 1
  br label %when66.end
when66.else:
  store <4 x float> %loop3.sum0_0, ptr %sums, align 1
  %v77 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop3.sum1_0, ptr %v77, align 1
  call void @store_panel(ptr %arguments, ptr %sums, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when66.end
when66.end:
  br label %when65.end
when65.else:
  %v78 = getelementptr i8, ptr %arguments, i64 216
  %v79 = load i64, ptr %v78, align 1
  %v80 = icmp eq i64 %v79, 1
  %v81 = and i1 %v62, %v80
  br i1 %v81, label %when82, label %when82.else
when82:
  %v83 = load <4 x float>, ptr %sums, align 1
  %v84 = fadd <4 x float> %v83, %loop3.sum0_0
  %v85 = getelementptr i8, ptr %sums, i64 16
  %v86 = load <4 x float>, ptr %v85, align 1
  %v87 = fadd <4 x float> %v86, %loop3.sum1_0
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
  %v98 = load i64, ptr %v57, align 1
  %v99 = getelementptr i8, ptr %v57, i64 24
  %v100 = load i64, ptr %v99, align 1
  %v101 = getelementptr i8, ptr %sums, i64 16
  %v102 = and i64 %v98, 15
  %v103 = icmp eq i64 %v102, 0
  br i1 %v103, label %when104, label %when104.else
when104:
  store <4 x float> %loop3.sum0_0, ptr %sums, align 1
  store <4 x float> %loop3.sum1_0, ptr %v101, align 1
  br label %when104.end
when104.else:
  %v105 = load <4 x float>, ptr %sums, align 1
  %v106 = fadd <4 x float> %v105, %loop3.sum0_0
  store <4 x float> %v106, ptr %sums, align 1
  %v107 = load <4 x float>, ptr %v101, align 1
  %v108 = fadd <4 x float> %v107, %loop3.sum1_0
  store <4 x float> %v108, ptr %v101, align 1
  br label %when104.end
when104.end:
  %v109 = getelementptr i8, ptr %arguments, i64 216
  %v110 = load i64, ptr %v109, align 1
  %v111 = xor i64 %v98, %v100
  %v112 = lshr i64 %v111, 4
  %v113 = icmp ne i64 %v112, 0
  br i1 %v113, label %when114, label %when114.end
when114:
  call void @combine_up(ptr %sums, i64 32, i64 32, i64 %v110, i64 %v98, i64 %v100)
  br label %when114.end
when114.end:
  %v115 = getelementptr i8, ptr %arguments, i64 216
  %v116 = load i64, ptr %v115, align 1
  %v117 = sub i64 %v116, 1
  %v118 = mul i64 %v117, 32
  %v119 = getelementptr i8, ptr %sums, i64 %v118
  call void @store_panel(ptr %arguments, ptr %v119, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when82.end
when82.end:
  br label %when65.end
when65.end:
  br label %when56.end
when56.end:
  ret void
}

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

