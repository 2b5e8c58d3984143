define internal void @strip(ptr %arguments, ptr %chain, i64 %chain_step, i1 %begins, ptr %x, ptr %y, ptr %line, ptr %shifts, ptr %segments, i64 %group, i64 %panels) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 360
  %v2 = load i64, ptr %v1, align 1
  %v3 = getelementptr i8, ptr %arguments, i64 368
  %v4 = load i64, ptr %v3, align 1
  %v5 = getelementptr i8, ptr %arguments, i64 304
  %v6 = load i64, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %arguments, i64 488
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %arguments, i64 496
  %v10 = load i64, ptr %v9, align 1
  %v11 = getelementptr i8, ptr %arguments, i64 144
  %v12 = load ptr, ptr %v11, align 1
  %v13 = load i64, ptr %shifts, align 1
  %v14 = getelementptr i8, ptr %v12, i64 %v13
  %v15 = load i64, ptr %line, align 1
  %v16 = getelementptr i8, ptr %line, i64 8
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %line, i64 16
  %v19 = load i64, ptr %v18, align 1
  %v20 = getelementptr i8, ptr %line, i64 24
  %v21 = load i64, ptr %v20, align 1
  %v22 = getelementptr i8, ptr %v14, i64 %v21
  %v23 = load i64, ptr %v22, align 1
  %v24 = icmp eq i64 %v23, -9223372036854775808
  %v25 = select i1 %v24, i64 %v15, i64 %v17
  %v26 = icmp eq i64 %v23, -9223372036854775808
  %v27 = select i1 %v26, i64 %v23, i64 %v23
  %v28 = load i64, ptr %segments, align 1
  %v29 = getelementptr i8, ptr %segments, i64 8
  %v30 = load i64, ptr %v29, align 1
  %v31 = call i64 @llvm.smax.i64(i64 %v28, i64 %v15)
  %v32 = call i64 @llvm.smin.i64(i64 %v31, i64 %v25)
  %v33 = call i64 @llvm.smax.i64(i64 %v30, i64 %v32)
  %v34 = call i64 @llvm.smin.i64(i64 %v33, i64 %v25)
  %v35 = getelementptr i8, ptr %x, i64 %v27
  %v36 = mul i64 %v15, %v2
  %v37 = getelementptr i8, ptr %v35, i64 %v36
  %v38 = getelementptr i8, ptr %y, i64 %v19
  %v39 = mul i64 %v15, %v4
  %v40 = getelementptr i8, ptr %v38, i64 %v39
  br label %loop41
loop41:
  %loop41.index = phi i64 [ 0, %entry ], [ %v149, %when144.end ]
  %loop41.chain = phi ptr [ %chain, %entry ], [ %v148, %when144.end ]
  %loop41.more = icmp slt i64 %loop41.index, %panels
  br i1 %loop41.more, label %loop41.body, label %loop41.end
loop41.body:
  %v42 = add i64 %group, %loop41.index
  %v43 = mul i64 %v42, 4
  %v44 = getelementptr i8, ptr %arguments, i64 296
  %v45 = load i64, ptr %v44, align 1
  %v46 = sub i64 %v45, 4
  %v47 = call i64 @llvm.smin.i64(i64 %v43, i64 %v46)
  %v48 = mul i64 %v47, 4
  %v49 = getelementptr i8, ptr %v37, i64 %v48
  %v50 = mul i64 %v47, 4
  %v51 = getelementptr i8, ptr %v40, i64 %v50
  %v52 = load <4 x float>, ptr %loop41.chain, align 1
  %v53 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v52
  %v54 = getelementptr i8, ptr %loop41.chain, i64 16
  %v55 = load <4 x float>, ptr %v54, align 1
  %v56 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v55
  %v57 = sub i64 %v32, %v15
  br label %loop58
loop58:
  %loop58.index = phi i64 [ 0, %loop41.body ], [ %v90, %loop58.body ]
  %loop58.x0 = phi ptr [ %v49, %loop41.body ], [ %v88, %loop58.body ]
  %loop58.y = phi ptr [ %v51, %loop41.body ], [ %v89, %loop58.body ]
  %loop58.sum0 = phi <4 x float> [ %v53, %loop41.body ], [ %v83, %loop58.body ]
  %loop58.sum1 = phi <4 x float> [ %v56, %loop41.body ], [ %v87, %loop58.body ]
  %loop58.more = icmp slt i64 %loop58.index, %v57
  br i1 %loop58.more, label %loop58.body, label %loop58.end
loop58.body:
  %v59 = add i64 %v15, %loop58.index
  %v60 = load <4 x float>, ptr %loop58.y, align 1
  %v61 = getelementptr i8, ptr %segments, i64 24
  %v62 = load i64, ptr %v61, align 1
  %v63 = getelementptr i8, ptr %segments, i64 32
  %v64 = load i64, ptr %v63, align 1
  %v65 = sub i64 %v59, %v62
  %v66 = sub i64 %v64, %v62
  %v67 = icmp ult i64 %v65, %v66
  %v68 = insertelement <4 x i1> poison, i1 %v67, i64 0
  %v69 = shufflevector <4 x i1> %v68, <4 x i1> poison, <4 x i32> zeroinitializer
  %v70 = getelementptr i8, ptr %segments, i64 48
  %v71 = load i64, ptr %v70, align 1
  %v72 = getelementptr i8, ptr %segments, i64 56
  %v73 = load i64, ptr %v72, align 1
  %v74 = sub i64 %v59, %v71
  %v75 = sub i64 %v73, %v71
  %v76 = icmp ult i64 %v74, %v75
  %v77 = insertelement <4 x i1> poison, i1 %v76, i64 0
  %v78 = shufflevector <4 x i1> %v77, <4 x i1> poison, <4 x i32> zeroinitializer
  %v79 = mul i64 %v6, 0
  %v80 = getelementptr i8, ptr %loop58.x0, i64 %v79
  %v81 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v80, i32 1, <4 x i1> %v69, <4 x float> zeroinitializer)
  %v82 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v81, <4 x float> %v60, <4 x float> %loop58.sum0)
  %v83 = select <4 x i1> %v69, <4 x float> %v82, <4 x float> %loop58.sum0
  %v84 = getelementptr i8, ptr %loop58.x0, i64 %v6
  %v85 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v84, i32 1, <4 x i1> %v78, <4 x float> zeroinitializer)
  %v86 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v85, <4 x float> %v60, <4 x float> %loop58.sum1)
  %v87 = select <4 x i1> %v78, <4 x float> %v86, <4 x float> %loop58.sum1
  %v88 = getelementptr i8, ptr %loop58.x0, i64 %v2
  %v89 = getelementptr i8, ptr %loop58.y, i64 %v4
  %v90 = add i64 %loop58.index, 1
  br label %loop58
loop58.end:
  %v91 = sub i64 %v34, %v32
  %v92 = call i64 @llvm.smin.i64(i64 %v91, i64 1)
  br label %loop93
loop93:
  %loop93.index = phi i64 [ 0, %loop58.end ], [ %v109, %loop97.end ]
  %loop93.x0 = phi ptr [ %loop58.x0, %loop58.end ], [ %loop97.x0, %loop97.end ]
  %loop93.y = phi ptr [ %loop58.y, %loop58.end ], [ %loop97.y, %loop97.end ]
  %loop93.sum0 = phi <4 x float> [ %loop58.sum0, %loop58.end ], [ %loop97.sum0, %loop97.end ]
  %loop93.sum1 = phi <4 x float> [ %loop58.sum1, %loop58.end ], [ %loop97.sum1, %loop97.end ]
  %loop93.more = icmp slt i64 %loop93.index, %v92
  br i1 %loop93.more, label %loop93.body, label %loop93.end
loop93.body:
  %v94 = mul i64 %v6, 0
  %v95 = getelementptr i8, ptr %loop93.x0, i64 %v94
  %v96 = load <4 x float>, ptr %v95, align 1
  br label %loop97
loop97:
  %loop97.index = phi i64 [ 0, %loop93.body ], [ %v108, %loop97.body ]
  %loop97.x0 = phi ptr [ %loop93.x0, %loop93.body ], [ %v106, %loop97.body ]
  %loop97.y = phi ptr [ %loop93.y, %loop93.body ], [ %v107, %loop97.body ]
  %loop97.sum0 = phi <4 x float> [ %loop93.sum0, %loop93.body ], [ %v104, %loop97.body ]
  %loop97.sum1 = phi <4 x float> [ %loop93.sum1, %loop93.body ], [ %v105, %loop97.body ]
  %loop97.held0_0 = phi <4 x float> [ %v96, %loop93.body ], [ %v103, %loop97.body ]
  %loop97.more = icmp slt i64 %loop97.index, %v91
  br i1 %loop97.more, label %loop97.body, label %loop97.end
loop97.body:
  %v98 = load <4 x float>, ptr %loop97.y, align 1
  %v99 = getelementptr i8, ptr %loop97.y, i64 %v10
  call void @llvm.prefetch.p0(ptr %v99, i32 0, i32 2, i32 1)
  %v100 = getelementptr i8, ptr %loop97.x0, i64 %v8
  call void @llvm.prefetch.p0(ptr %v100, i32 0, i32 2, i32 1)
  %v101 = call i64 asm "", "=r,0"(i64 %v6)
  %v102 = getelementptr i8, ptr %loop97.x0, i64 %v101
  %v103 = load <4 x float>, ptr %v102, align 1
  %v104 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop97.held0_0, <4 x float> %v98, <4 x float> %loop97.sum0)
  %v105 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v103, <4 x float> %v98, <4 x float> %loop97.sum1)
  %v106 = getelementptr i8, ptr %loop97.x0, i64 %v2
  %v107 = getelementptr i8, ptr %loop97.y, i64 %v4
  %v108 = add i64 %loop97.index, 1
  br label %loop97
loop97.end:
  %v109 = add i64 %loop93.index, 1
  br label %loop93
loop93.end:
  %v110 = sub i64 %v25, %v34
  br label %loop111
loop111:
  %loop111.index = phi i64 [ 0, %loop93.end ], [ %v143, %loop111.body ]
  %loop111.x0 = phi ptr [ %loop93.x0, %loop93.end ], [ %v141, %loop111.body ]
  %loop111.y = phi ptr [ %loop93.y, %loop93.end ], [ %v142, %loop111.body ]
  %loop111.sum0 = phi <4 x float> [ %loop93.sum0, %loop93.end ], [ %v136, %loop111.body ]
  %loop111.sum1 = phi <4 x float> [ %loop93.sum1, %loop93.end ], [ %v140, %loop111.body ]
  %loop111.more = icmp slt i64 %loop111.index, %v110
  br i1 %loop111.more, label %loop111.body, label %loop111.end
loop111.body:
  %v112 = add i64 %v34, %loop111.index
  %v113 = load <4 x float>, ptr %loop111.y, align 1
  %v114 = getelementptr i8, ptr %segments, i64 24
  %v115 = load i64, ptr %v114, align 1
  %v116 = getelementptr i8, ptr %segments, i64 32
  %v117 = load i64, ptr %v116, align 1
  %v118 = sub i64 %v112, %v115
  %v119 = sub i64 %v117, %v115
  %v120 = icmp ult i64 %v118, %v119
  %v121 = insertelement <4 x i1> poison, i1 %v120, i64 0
  %v122 = shufflevector <4 x i1> %v121, <4 x i1> poison, <4 x i32> zeroinitializer
  %v123 = getelementptr i8, ptr %segments, i64 48
  %v124 = load i64, ptr %v123, align 1
  %v125 = getelementptr i8, ptr %segments, i64 56
  %v126 = load i64, ptr %v125, align 1
  %v127 = sub i64 %v112, %v124
  %v128 = sub i64 %v126, %v124
  %v129 = icmp ult i64 %v127, %v128
  %v130 = insertelement <4 x i1> poison, i1 %v129, i64 0
  %v131 = shufflevector <4 x i1> %v130, <4 x i1> poison, <4 x i32> zeroinitializer
  %v132 = mul i64 %v6, 0
  %v133 = getelementptr i8, ptr %loop111.x0, i64 %v132
  %v134 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v133, i32 1, <4 x i1> %v122, <4 x float> zeroinitializer)
  %v135 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v134, <4 x float> %v113, <4 x float> %loop111.sum0)
  %v136 = select <4 x i1> %v122, <4 x float> %v135, <4 x float> %loop111.sum0
  %v137 = getelementptr i8, ptr %loop111.x0, i64 %v6
  %v138 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v137, i32 1, <4 x i1> %v131, <4 x float> zeroinitializer)
  %v139 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v138, <4 x float> %v113, <4 x float> %loop111.sum1)
  %v140 = select <4 x i1> %v131, <4 x float> %v139, <4 x float> %loop111.sum1
  %v141 = getelementptr i8, ptr %loop111.x0, i64 %v2
  %v142 = getelementptr i8, ptr %loop111.y, i64 %v4
  %v143 = add i64 %loop111.index, 1
  br label %loop111
loop111.end:
  br i1 %v26, label %when144, label %when144.else
when144:
  br i1 %begins, label %when145, label %when145.end
when145:
  store <4 x float> zeroinitializer, ptr %loop41.chain, align 1
  %v146 = getelementptr i8, ptr %loop41.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v146, align 1
  br label %when145.end
when145.end:
  br label %when144.end
when144.else:
  store <4 x float> %loop111.sum0, ptr %loop41.chain, align 1
  %v147 = getelementptr i8, ptr %loop41.chain, i64 16
  store <4 x float> %loop111.sum1, ptr %v147, align 1
  br label %when144.end
when144.end:
  %v148 = getelementptr i8, ptr %loop41.chain, i64 %chain_step
  %v149 = add i64 %loop41.index, 1
  br label %loop41
loop41.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, i32, <4 x i1>, <4 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

