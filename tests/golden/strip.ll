define internal void @strip(ptr %arguments, ptr %chain, i64 %chain_step, i64 %panels, i1 %begins, i64 %image, ptr %line, ptr %tap, i64 %group) #0 {
entry:
  %v1 = load i64, ptr %tap, align 1
  %v2 = getelementptr i8, ptr %tap, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %tap, i64 16
  %v5 = load i64, ptr %v4, align 1
  %v6 = getelementptr i8, ptr %tap, i64 24
  %v7 = load i64, ptr %v6, align 1
  %v8 = getelementptr i8, ptr %tap, i64 32
  %v9 = load i64, ptr %v8, align 1
  %v10 = getelementptr i8, ptr %tap, i64 40
  %v11 = load i64, ptr %v10, align 1
  %v12 = getelementptr i8, ptr %arguments, i64 232
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 328
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 376
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %arguments, i64 240
  %v19 = load i64, ptr %v18, align 1
  %v20 = getelementptr i8, ptr %arguments, i64 336
  %v21 = load i64, ptr %v20, align 1
  %v22 = getelementptr i8, ptr %arguments, i64 96
  %v23 = load ptr, ptr %v22, align 1
  %v24 = mul i64 %v7, 24
  %v25 = getelementptr i8, ptr %v23, i64 %v24
  %v26 = getelementptr i8, ptr %arguments, i64 128
  %v27 = load ptr, ptr %v26, align 1
  %v28 = getelementptr i8, ptr %arguments, i64 136
  %v29 = load ptr, ptr %v28, align 1
  %v30 = mul i64 %v1, 8
  %v31 = getelementptr i8, ptr %v29, i64 %v30
  %v32 = load i64, ptr %v31, align 1
  %v33 = getelementptr i8, ptr %v27, i64 %v32
  %v34 = load i64, ptr %line, align 1
  %v35 = getelementptr i8, ptr %line, i64 8
  %v36 = load i64, ptr %v35, align 1
  %v37 = getelementptr i8, ptr %line, i64 16
  %v38 = load i64, ptr %v37, align 1
  %v39 = getelementptr i8, ptr %line, i64 24
  %v40 = load i64, ptr %v39, align 1
  %v41 = getelementptr i8, ptr %v33, i64 %v40
  %v42 = load i64, ptr %v41, align 1
  %v43 = icmp eq i64 %v42, -9223372036854775808
  %v44 = select i1 %v43, i64 %v34, i64 %v36
  %v45 = icmp eq i64 %v42, -9223372036854775808
  %v46 = select i1 %v45, i64 %v42, i64 %v42
  %v47 = load i64, ptr %v25, align 1
  %v48 = getelementptr i8, ptr %v25, i64 8
  %v49 = load i64, ptr %v48, align 1
  %v50 = call i64 @llvm.smax.i64(i64 %v47, i64 %v34)
  %v51 = call i64 @llvm.smin.i64(i64 %v50, i64 %v44)
  %v52 = call i64 @llvm.smax.i64(i64 %v49, i64 %v51)
  %v53 = call i64 @llvm.smin.i64(i64 %v52, i64 %v44)
  %v54 = getelementptr i8, ptr %arguments, i64 32
  %v55 = load ptr, ptr %v54, align 1
  %v56 = getelementptr i8, ptr %arguments, i64 168
  %v57 = load i64, ptr %v56, align 1
  %v58 = mul i64 %image, %v57
  %v59 = getelementptr i8, ptr %v55, i64 %v58
  %v60 = getelementptr i8, ptr %v59, i64 %v3
  %v61 = getelementptr i8, ptr %arguments, i64 40
  %v62 = load ptr, ptr %v61, align 1
  %v63 = getelementptr i8, ptr %arguments, i64 264
  %v64 = load i64, ptr %v63, align 1
  %v65 = mul i64 %image, %v64
  %v66 = getelementptr i8, ptr %v62, i64 %v65
  %v67 = getelementptr i8, ptr %v60, i64 %v46
  %v68 = mul i64 %v34, %v13
  %v69 = getelementptr i8, ptr %v67, i64 %v68
  %v70 = getelementptr i8, ptr %v66, i64 %v38
  %v71 = mul i64 %v34, %v15
  %v72 = getelementptr i8, ptr %v70, i64 %v71
  br label %loop73
loop73:
  %loop73.index = phi i64 [ 0, %entry ], [ %v181, %when176.end ]
  %loop73.chain = phi ptr [ %chain, %entry ], [ %v180, %when176.end ]
  %loop73.more = icmp slt i64 %loop73.index, %panels
  br i1 %loop73.more, label %loop73.body, label %loop73.end
loop73.body:
  %v74 = add i64 %group, %loop73.index
  %v75 = mul i64 %v74, 4
  %v76 = getelementptr i8, ptr %arguments, i64 360
  %v77 = load i64, ptr %v76, align 1
  %v78 = sub i64 %v77, 4
  %v79 = call i64 @llvm.smin.i64(i64 %v75, i64 %v78)
  %v80 = mul i64 %v79, 4
  %v81 = getelementptr i8, ptr %v69, i64 %v80
  %v82 = mul i64 %v79, 4
  %v83 = getelementptr i8, ptr %v72, i64 %v82
  %v84 = load <4 x float>, ptr %loop73.chain, align 1
  %v85 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v84
  %v86 = getelementptr i8, ptr %loop73.chain, i64 16
  %v87 = load <4 x float>, ptr %v86, align 1
  %v88 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v87
  %v89 = sub i64 %v51, %v34
  br label %loop90
loop90:
  %loop90.index = phi i64 [ 0, %loop73.body ], [ %v122, %loop90.body ]
  %loop90.x0 = phi ptr [ %v81, %loop73.body ], [ %v120, %loop90.body ]
  %loop90.y = phi ptr [ %v83, %loop73.body ], [ %v121, %loop90.body ]
  %loop90.sum0 = phi <4 x float> [ %v85, %loop73.body ], [ %v115, %loop90.body ]
  %loop90.sum1 = phi <4 x float> [ %v88, %loop73.body ], [ %v119, %loop90.body ]
  %loop90.more = icmp slt i64 %loop90.index, %v89
  br i1 %loop90.more, label %loop90.body, label %loop90.end
loop90.body:
  %v91 = add i64 %v34, %loop90.index
  %v92 = load <4 x float>, ptr %loop90.y, align 1
  %v93 = getelementptr i8, ptr %v25, i64 24
  %v94 = load i64, ptr %v93, align 1
  %v95 = getelementptr i8, ptr %v25, i64 32
  %v96 = load i64, ptr %v95, align 1
  %v97 = sub i64 %v91, %v94
  %v98 = sub i64 %v96, %v94
  %v99 = icmp ult i64 %v97, %v98
  %v100 = insertelement <4 x i1> poison, i1 %v99, i64 0
  %v101 = shufflevector <4 x i1> %v100, <4 x i1> poison, <4 x i32> zeroinitializer
  %v102 = getelementptr i8, ptr %v25, i64 48
  %v103 = load i64, ptr %v102, align 1
  %v104 = getelementptr i8, ptr %v25, i64 56
  %v105 = load i64, ptr %v104, align 1
  %v106 = sub i64 %v91, %v103
  %v107 = sub i64 %v105, %v103
  %v108 = icmp ult i64 %v106, %v107
  %v109 = insertelement <4 x i1> poison, i1 %v108, i64 0
  %v110 = shufflevector <4 x i1> %v109, <4 x i1> poison, <4 x i32> zeroinitializer
  %v111 = mul i64 %v17, 0
  %v112 = getelementptr i8, ptr %loop90.x0, i64 %v111
  %v113 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v112, i32 1, <4 x i1> %v101, <4 x float> zeroinitializer)
  %v114 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v113, <4 x float> %v92, <4 x float> %loop90.sum0)
  %v115 = select <4 x i1> %v101, <4 x float> %v114, <4 x float> %loop90.sum0
  %v116 = getelementptr i8, ptr %loop90.x0, i64 %v17
  %v117 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v116, i32 1, <4 x i1> %v110, <4 x float> zeroinitializer)
  %v118 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v117, <4 x float> %v92, <4 x float> %loop90.sum1)
  %v119 = select <4 x i1> %v110, <4 x float> %v118, <4 x float> %loop90.sum1
  %v120 = getelementptr i8, ptr %loop90.x0, i64 %v13
  %v121 = getelementptr i8, ptr %loop90.y, i64 %v15
  %v122 = add i64 %loop90.index, 1
  br label %loop90
loop90.end:
  %v123 = sub i64 %v53, %v51
  %v124 = call i64 @llvm.smin.i64(i64 %v123, i64 1)
  br label %loop125
loop125:
  %loop125.index = phi i64 [ 0, %loop90.end ], [ %v141, %loop129.end ]
  %loop125.x0 = phi ptr [ %loop90.x0, %loop90.end ], [ %loop129.x0, %loop129.end ]
  %loop125.y = phi ptr [ %loop90.y, %loop90.end ], [ %loop129.y, %loop129.end ]
  %loop125.sum0 = phi <4 x float> [ %loop90.sum0, %loop90.end ], [ %loop129.sum0, %loop129.end ]
  %loop125.sum1 = phi <4 x float> [ %loop90.sum1, %loop90.end ], [ %loop129.sum1, %loop129.end ]
  %loop125.more = icmp slt i64 %loop125.index, %v124
  br i1 %loop125.more, label %loop125.body, label %loop125.end
loop125.body:
  %v126 = mul i64 %v17, 0
  %v127 = getelementptr i8, ptr %loop125.x0, i64 %v126
  %v128 = load <4 x float>, ptr %v127, align 1
  br label %loop129
loop129:
  %loop129.index = phi i64 [ 0, %loop125.body ], [ %v140, %loop129.body ]
  %loop129.x0 = phi ptr [ %loop125.x0, %loop125.body ], [ %v138, %loop129.body ]
  %loop129.y = phi ptr [ %loop125.y, %loop125.body ], [ %v139, %loop129.body ]
  %loop129.sum0 = phi <4 x float> [ %loop125.sum0, %loop125.body ], [ %v136, %loop129.body ]
  %loop129.sum1 = phi <4 x float> [ %loop125.sum1, %loop125.body ], [ %v137, %loop129.body ]
  %loop129.held0_0 = phi <4 x float> [ %v128, %loop125.body ], [ %v135, %loop129.body ]
  %loop129.more = icmp slt i64 %loop129.index, %v123
  br i1 %loop129.more, label %loop129.body, label %loop129.end
loop129.body:
  %v130 = load <4 x float>, ptr %loop129.y, align 1
  %v131 = getelementptr i8, ptr %loop129.y, i64 %v21
  call void @llvm.prefetch.p0(ptr %v131, i32 0, i32 2, i32 1)
  %v132 = getelementptr i8, ptr %loop129.x0, i64 %v19
  call void @llvm.prefetch.p0(ptr %v132, i32 0, i32 2, i32 1)
  %v133 = call i64 asm "", "=r,0"(i64 %v17)
  %v134 = getelementptr i8, ptr %loop129.x0, i64 %v133
  %v135 = load <4 x float>, ptr %v134, align 1
  %v136 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop129.held0_0, <4 x float> %v130, <4 x float> %loop129.sum0)
  %v137 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v135, <4 x float> %v130, <4 x float> %loop129.sum1)
  %v138 = getelementptr i8, ptr %loop129.x0, i64 %v13
  %v139 = getelementptr i8, ptr %loop129.y, i64 %v15
  %v140 = add i64 %loop129.index, 1
  br label %loop129
loop129.end:
  %v141 = add i64 %loop125.index, 1
  br label %loop125
loop125.end:
  %v142 = sub i64 %v44, %v53
  br label %loop143
loop143:
  %loop143.index = phi i64 [ 0, %loop125.end ], [ %v175, %loop143.body ]
  %loop143.x0 = phi ptr [ %loop125.x0, %loop125.end ], [ %v173, %loop143.body ]
  %loop143.y = phi ptr [ %loop125.y, %loop125.end ], [ %v174, %loop143.body ]
  %loop143.sum0 = phi <4 x float> [ %loop125.sum0, %loop125.end ], [ %v168, %loop143.body ]
  %loop143.sum1 = phi <4 x float> [ %loop125.sum1, %loop125.end ], [ %v172, %loop143.body ]
  %loop143.more = icmp slt i64 %loop143.index, %v142
  br i1 %loop143.more, label %loop143.body, label %loop143.end
loop143.body:
  %v144 = add i64 %v53, %loop143.index
  %v145 = load <4 x float>, ptr %loop143.y, align 1
  %v146 = getelementptr i8, ptr %v25, i64 24
  %v147 = load i64, ptr %v146, align 1
  %v148 = getelementptr i8, ptr %v25, i64 32
  %v149 = load i64, ptr %v148, align 1
  %v150 = sub i64 %v144, %v147
  %v151 = sub i64 %v149, %v147
  %v152 = icmp ult i64 %v150, %v151
  %v153 = insertelement <4 x i1> poison, i1 %v152, i64 0
  %v154 = shufflevector <4 x i1> %v153, <4 x i1> poison, <4 x i32> zeroinitializer
  %v155 = getelementptr i8, ptr %v25, i64 48
  %v156 = load i64, ptr %v155, align 1
  %v157 = getelementptr i8, ptr %v25, i64 56
  %v158 = load i64, ptr %v157, align 1
  %v159 = sub i64 %v144, %v156
  %v160 = sub i64 %v158, %v156
  %v161 = icmp ult i64 %v159, %v160
  %v162 = insertelement <4 x i1> poison, i1 %v161, i64 0
  %v163 = shufflevector <4 x i1> %v162, <4 x i1> poison, <4 x i32> zeroinitializer
  %v164 = mul i64 %v17, 0
  %v165 = getelementptr i8, ptr %loop143.x0, i64 %v164
  %v166 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v165, i32 1, <4 x i1> %v154, <4 x float> zeroinitializer)
  %v167 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v166, <4 x float> %v145, <4 x float> %loop143.sum0)
  %v168 = select <4 x i1> %v154, <4 x float> %v167, <4 x float> %loop143.sum0
  %v169 = getelementptr i8, ptr %loop143.x0, i64 %v17
  %v170 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v169, i32 1, <4 x i1> %v163, <4 x float> zeroinitializer)
  %v171 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v170, <4 x float> %v145, <4 x float> %loop143.sum1)
  %v172 = select <4 x i1> %v163, <4 x float> %v171, <4 x float> %loop143.sum1
  %v173 = getelementptr i8, ptr %loop143.x0, i64 %v13
  %v174 = getelementptr i8, ptr %loop143.y, i64 %v15
  %v175 = add i64 %loop143.index, 1
  br label %loop143
loop143.end:
  br i1 %v45, label %when176, label %when176.else
when176:
  br i1 %begins, label %when177, label %when177.end
when177:
  store <4 x float> zeroinitializer, ptr %loop73.chain, align 1
  %v178 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v178, align 1
  br label %when177.end
when177.end:
  br label %when176.end
when176.else:
  store <4 x float> %loop143.sum0, ptr %loop73.chain, align 1
  %v179 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> %loop143.sum1, ptr %v179, align 1
  br label %when176.end
when176.end:
  %v180 = getelementptr i8, ptr %loop73.chain, i64 %chain_step
  %v181 = add i64 %loop73.index, 1
  br label %loop73
loop73.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, i32, <4 x i1>, <4 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

