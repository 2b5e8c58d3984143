define internal void @store_panel(ptr %arguments, ptr %sums, ptr %out, ptr %bias, i64 %rows, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 360
  %v2 = load i64, ptr %v1, align 1
  %v3 = icmp ne i64 %v2, 0
  %v4 = sub i64 %rows, %skip
  %v5 = mul i64 %skip, 16
  %v6 = getelementptr i8, ptr %sums, i64 %v5
  %v7 = mul i64 %skip, %out_step
  %v8 = getelementptr i8, ptr %out, i64 %v7
  %v9 = mul i64 4, 4
  %v10 = mul i64 %skip, %bias_step
  %v11 = getelementptr i8, ptr %bias, i64 %v10
  %v12 = load <4 x float>, ptr %v11, align 1
  br label %loop13
loop13:
  %loop13.index = phi i64 [ 0, %entry ], [ %v44, %when22.end ]
  %loop13.sums = phi ptr [ %v6, %entry ], [ %v42, %when22.end ]
  %loop13.out = phi ptr [ %v8, %entry ], [ %v43, %when22.end ]
  %loop13.more = icmp slt i64 %loop13.index, %v4
  br i1 %loop13.more, label %loop13.body, label %loop13.end
loop13.body:
  %v14 = load <4 x float>, ptr %loop13.sums, align 1
  %v15 = fadd <4 x float> %v14, zeroinitializer
  %v16 = fadd <4 x float> %v15, %v12
  %v17 = mul i64 %v9, 0
  %v18 = getelementptr i8, ptr %loop13.out, i64 %v17
  %v19 = mul i64 0, 4
  %v20 = sub i64 %left, %v19
  %v21 = icmp sge i64 %v20, 4
  br i1 %v21, label %when22, label %when22.else
when22:
  br i1 %v3, label %when23, label %when23.else
when23:
  %v24 = load <4 x float>, ptr %v18, align 1
  %v25 = fadd <4 x float> %v16, %v24
  %v26 = fcmp uno <4 x float> %v25, %v25
  %v27 = select <4 x i1> %v26, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v25
  store <4 x float> %v27, ptr %v18, align 1
  br label %when23.end
when23.else:
  %v28 = fcmp uno <4 x float> %v16, %v16
  %v29 = select <4 x i1> %v28, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v16
  store <4 x float> %v29, ptr %v18, align 1
  br label %when23.end
when23.end:
  br label %when22.end
when22.else:
  %v30 = icmp sgt i64 %v20, 0
  br i1 %v30, label %when31, label %when31.end
when31:
  %v32 = insertelement <4 x i64> poison, i64 %v20, i64 0
  %v33 = shufflevector <4 x i64> %v32, <4 x i64> poison, <4 x i32> zeroinitializer
  %v34 = icmp sgt <4 x i64> %v33, <i64 0, i64 1, i64 2, i64 3>
  br i1 %v3, label %when35, label %when35.else
when35:
  %v36 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v18, i32 1, <4 x i1> %v34, <4 x float> zeroinitializer)
  %v37 = fadd <4 x float> %v16, %v36
  %v38 = fcmp uno <4 x float> %v37, %v37
  %v39 = select <4 x i1> %v38, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v37
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v39, ptr %v18, i32 1, <4 x i1> %v34)
  br label %when35.end
when35.else:
  %v40 = fcmp uno <4 x float> %v16, %v16
  %v41 = select <4 x i1> %v40, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v16
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v41, ptr %v18, i32 1, <4 x i1> %v34)
  br label %when35.end
when35.end:
  br label %when31.end
when31.end:
  br label %when22.end
when22.end:
  %v42 = getelementptr i8, ptr %loop13.sums, i64 16
  %v43 = getelementptr i8, ptr %loop13.out, i64 %out_step
  %v44 = add i64 %loop13.index, 1
  br label %loop13
loop13.end:
  ret void
}

define internal void @tile2_1(ptr %arguments, ptr %sums, ptr %segments, ptr %chains, i64 %chain_count, ptr %data, ptr %weights, ptr %out, ptr %bias, i64 %row_step, i64 %out_step, ptr %next, i64 %rate, i64 %left, i64 %skip, i64 %bias_step, i1 %begins, i1 %ends) #0 {
entry:
  %v1 = sub i64 %chain_count, 1
  %v2 = select i1 %ends, i64 %v1, i64 %chain_count
  call void @llvm.prefetch.p0(ptr %out, i32 1, i32 3, i32 1)
  %v3 = getelementptr i8, ptr %out, i64 %out_step
  call void @llvm.prefetch.p0(ptr %v3, i32 1, i32 3, i32 1)
  %v4 = getelementptr i8, ptr %v3, i64 %out_step
  br label %loop5
loop5:
  %loop5.index = phi i64 [ 0, %entry ], [ %v57, %when38.end ]
  %loop5.chain = phi ptr [ %chains, %entry ], [ %v56, %when38.end ]
  %loop5.segment = phi ptr [ %segments, %entry ], [ %loop8.segment, %when38.end ]
  %loop5.prefetched = phi ptr [ %next, %entry ], [ %loop8.prefetched, %when38.end ]
  %loop5.sum0_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop8.sum0_0, %when38.end ]
  %loop5.sum1_0 = phi <4 x float> [ zeroinitializer, %entry ], [ %loop8.sum1_0, %when38.end ]
  %loop5.more = icmp slt i64 %loop5.index, %chain_count
  br i1 %loop5.more, label %loop5.body, label %loop5.end
loop5.body:
  %v6 = getelementptr i8, ptr %loop5.chain, i64 8
  %v7 = load i64, ptr %v6, align 1
  br label %loop8
loop8:
  %loop8.index = phi i64 [ 0, %loop5.body ], [ %v36, %loop19.end ]
  %loop8.segment = phi ptr [ %loop5.segment, %loop5.body ], [ %v35, %loop19.end ]
  %loop8.prefetched = phi ptr [ %loop5.prefetched, %loop5.body ], [ %loop19.prefetched, %loop19.end ]
  %loop8.sum0_0 = phi <4 x float> [ zeroinitializer, %loop5.body ], [ %loop19.sum0_0, %loop19.end ]
  %loop8.sum1_0 = phi <4 x float> [ zeroinitializer, %loop5.body ], [ %loop19.sum1_0, %loop19.end ]
  %loop8.more = icmp slt i64 %loop8.index, %v7
  br i1 %loop8.more, label %loop8.body, label %loop8.end
loop8.body:
  %v9 = load i64, ptr %loop8.segment, align 1
  %v10 = getelementptr i8, ptr %loop8.segment, i64 8
  %v11 = load i64, ptr %v10, align 1
  %v12 = getelementptr i8, ptr %loop8.segment, i64 16
  %v13 = load i64, ptr %v12, align 1
  %v14 = call i64 asm "", "=r,0"(i64 %row_step)
  %v15 = getelementptr i8, ptr %data, i64 %v9
  %v16 = mul i64 %row_step, 0
  %v17 = getelementptr i8, ptr %v15, i64 %v16
  %v18 = getelementptr i8, ptr %weights, i64 %v11
  br label %loop19
loop19:
  %loop19.index = phi i64 [ 0, %loop8.body ], [ %v34, %loop19.body ]
  %loop19.a0 = phi ptr [ %v17, %loop8.body ], [ %v32, %loop19.body ]
  %loop19.w = phi ptr [ %v18, %loop8.body ], [ %v31, %loop19.body ]
  %loop19.prefetched = phi ptr [ %loop8.prefetched, %loop8.body ], [ %v33, %loop19.body ]
  %loop19.sum0_0 = phi <4 x float> [ %loop8.sum0_0, %loop8.body ], [ %v25, %loop19.body ]
  %loop19.sum1_0 = phi <4 x float> [ %loop8.sum1_0, %loop8.body ], [ %v30, %loop19.body ]
  %loop19.more = icmp slt i64 %loop19.index, %v13
  br i1 %loop19.more, label %loop19.body, label %loop19.end
loop19.body:
  %v20 = load <4 x float>, ptr %loop19.w, align 1
  %v21 = call ptr asm "", "=r,0"(ptr %loop19.a0)
  %v22 = load float, ptr %v21, align 1
  %v23 = insertelement <4 x float> poison, float %v22, i64 0
  %v24 = shufflevector <4 x float> %v23, <4 x float> poison, <4 x i32> zeroinitializer
  %v25 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v24, <4 x float> %v20, <4 x float> %loop19.sum0_0)
  %v26 = getelementptr i8, ptr %v21, i64 %v14
  %v27 = load float, ptr %v26, align 1
  %v28 = insertelement <4 x float> poison, float %v27, i64 0
  %v29 = shufflevector <4 x float> %v28, <4 x float> poison, <4 x i32> zeroinitializer
  %v30 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v29, <4 x float> %v20, <4 x float> %loop19.sum1_0)
  %v31 = getelementptr i8, ptr %loop19.w, i64 16
  call void @llvm.prefetch.p0(ptr %loop19.prefetched, i32 0, i32 3, i32 1)
  %v32 = getelementptr i8, ptr %loop19.a0, i64 4
  %v33 = getelementptr i8, ptr %loop19.prefetched, i64 %rate
  %v34 = add i64 %loop19.index, 1
  br label %loop19
loop19.end:
  %v35 = getelementptr i8, ptr %loop8.segment, i64 24
  %v36 = add i64 %loop8.index, 1
  br label %loop8
loop8.end:
  %v37 = icmp slt i64 %loop5.index, %v2
  br i1 %v37, label %when38, label %when38.end
when38:
  %v39 = load i64, ptr %loop5.chain, align 1
  %v40 = getelementptr i8, ptr %loop5.chain, i64 24
  %v41 = load i64, ptr %v40, align 1
  %v42 = getelementptr i8, ptr %sums, i64 16
  %v43 = and i64 %v39, 15
  %v44 = icmp eq i64 %v43, 0
  br i1 %v44, label %when45, label %when45.else
when45:
  store <4 x float> %loop8.sum0_0, ptr %sums, align 1
  store <4 x float> %loop8.sum1_0, ptr %v42, align 1
  br label %when45.end
when45.else:
  %v46 = load <4 x float>, ptr %sums, align 1
  %v47 = fadd <4 x float> %v46, %loop8.sum0_0
  store <4 x float> %v47, ptr %sums, align 1
  %v48 = load <4 x float>, ptr %v42, align 1
  %v49 = fadd <4 x float> %v48, %loop8.sum1_0
  store <4 x float> %v49, ptr %v42, align 1
  br label %when45.end
when45.end:
  %v50 = getelementptr i8, ptr %arguments, i64 224
  %v51 = load i64, ptr %v50, align 1
  %v52 = xor i64 %v39, %v41
  %v53 = lshr i64 %v52, 4
  %v54 = icmp ne i64 %v53, 0
  br i1 %v54, label %when55, label %when55.end
when55:
  call void @combine_up(ptr %sums, i64 32, i64 32, i64 %v51, i64 %v39, i64 %v41)
  br label %when55.end
when55.end:
  br label %when38.end
when38.end:
  %v56 = getelementptr i8, ptr %loop5.chain, i64 24
  %v57 = add i64 %loop5.index, 1
  br label %loop5
loop5.end:
  br i1 %ends, label %when58, label %when58.end
when58:
  %v59 = getelementptr i8, ptr %loop5.chain, i64 -24
  %v60 = getelementptr i8, ptr %arguments, i64 360
  %v61 = load i64, ptr %v60, align 1
  %v62 = icmp eq i64 %v61, 0
  %v63 = icmp sge i64 %left, 4
  %v64 = and i1 %v62, %v63
  %v65 = icmp slt i64 %chain_count, 2
  %v66 = and i1 %begins, %v65
  br i1 %v66, label %when67, label %when67.else
when67:
  br i1 %v64, label %when68, label %when68.else
when68:
  %v69 = load <4 x float>, ptr %bias, align 1
  %v70 = fadd <4 x float> %loop5.sum0_0, zeroinitializer
  %v71 = fadd <4 x float> %v70, %v69
  %v72 = fadd <4 x float> %loop5.sum1_0, zeroinitializer
  %v73 = fadd <4 x float> %v72, %v69
  %v74 = fcmp uno <4 x float> %v71, %v71
  %v75 = select <4 x i1> %v74, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v71
  store <4 x float> %v75, ptr %out, align 1
  %v76 = getelementptr i8, ptr %out, i64 %out_step
  %v77 = fcmp uno <4 x float> %v73, %v73
  %v78 = select <4 x i1> %v77, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v73
  store <4 x float> %v78, ptr %v76, align 1
  br label %when68.end
when68.else:
  store <4 x float> %loop5.sum0_0, ptr %sums, align 1
  %v79 = getelementptr i8, ptr %sums, i64 16
  store <4 x float> %loop5.sum1_0, ptr %v79, align 1
  call void @store_panel(ptr %arguments, ptr %sums, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when68.end
when68.end:
  br label %when67.end
when67.else:
  %v80 = getelementptr i8, ptr %arguments, i64 224
  %v81 = load i64, ptr %v80, align 1
  %v82 = icmp eq i64 %v81, 1
  %v83 = and i1 %v64, %v82
  br i1 %v83, label %when84, label %when84.else
when84:
  %v85 = load <4 x float>, ptr %sums, align 1
  %v86 = fadd <4 x float> %v85, %loop5.sum0_0
  %v87 = getelementptr i8, ptr %sums, i64 16
  %v88 = load <4 x float>, ptr %v87, align 1
  %v89 = fadd <4 x float> %v88, %loop5.sum1_0
  %v90 = load <4 x float>, ptr %bias, align 1
  %v91 = fadd <4 x float> %v86, zeroinitializer
  %v92 = fadd <4 x float> %v91, %v90
  %v93 = fadd <4 x float> %v89, zeroinitializer
  %v94 = fadd <4 x float> %v93, %v90
  %v95 = fcmp uno <4 x float> %v92, %v92
  %v96 = select <4 x i1> %v95, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v92
  store <4 x float> %v96, ptr %out, align 1
  %v97 = getelementptr i8, ptr %out, i64 %out_step
  %v98 = fcmp uno <4 x float> %v94, %v94
  %v99 = select <4 x i1> %v98, <4 x float> <float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000, float 0x7FF8000000000000>, <4 x float> %v94
  store <4 x float> %v99, ptr %v97, align 1
  br label %when84.end
when84.else:
  %v100 = load i64, ptr %v59, align 1
  %v101 = getelementptr i8, ptr %v59, i64 24
  %v102 = load i64, ptr %v101, align 1
  %v103 = getelementptr i8, ptr %sums, i64 16
  %v104 = and i64 %v100, 15
  %v105 = icmp eq i64 %v104, 0
  br i1 %v105, label %when106, label %when106.else
when106:
  store <4 x float> %loop5.sum0_0, ptr %sums, align 1
  store <4 x float> %loop5.sum1_0, ptr %v103, align 1
  br label %when106.end
when106.else:
  %v107 = load <4 x float>, ptr %sums, align 1
  %v108 = fadd <4 x float> %v107, %loop5.sum0_0
  store <4 x float> %v108, ptr %sums, align 1
  %v109 = load <4 x float>, ptr %v103, align 1
  %v110 = fadd <4 x float> %v109, %loop5.sum1_0
  store <4 x float> %v110, ptr %v103, align 1
  br label %when106.end
when106.end:
  %v111 = getelementptr i8, ptr %arguments, i64 224
  %v112 = load i64, ptr %v111, align 1
  %v113 = xor i64 %v100, %v102
  %v114 = lshr i64 %v113, 4
  %v115 = icmp ne i64 %v114, 0
  br i1 %v115, label %when116, label %when116.end
when116:
  call void @combine_up(ptr %sums, i64 32, i64 32, i64 %v112, i64 %v100, i64 %v102)
  br label %when116.end
when116.end:
  %v117 = getelementptr i8, ptr %arguments, i64 224
  %v118 = load i64, ptr %v117, align 1
  %v119 = sub i64 %v118, 1
  %v120 = mul i64 %v119, 32
  %v121 = getelementptr i8, ptr %sums, i64 %v120
  call void @store_panel(ptr %arguments, ptr %v121, ptr %out, ptr %bias, i64 2, i64 %skip, i64 %out_step, i64 %left, i64 %bias_step)
  br label %when84.end
when84.end:
  br label %when67.end
when67.end:
  br label %when58.end
when58.end:
  ret void
}

declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, i32, <4 x i1>, <4 x float>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, i32, <4 x i1>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

