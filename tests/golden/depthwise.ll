define internal void @depthwise(ptr %arguments, ptr %chain, i64 %chain_step, i64 %panels, i1 %begins, i64 %image, ptr %segment, ptr %tap, i64 %group) #0 {
entry:
  %v1 = load i64, ptr %tap, align 1
  %v2 = getelementptr i8, ptr %tap, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %tap, i64 16
  %v5 = load i64, ptr %v4, align 1
  %v6 = getelementptr i8, ptr %tap, i64 24
  %v7 = load i64, ptr %v6, align 1
  %v8 = getelementptr i8, ptr %arguments, i64 208
  %v9 = load i64, ptr %v8, align 1
  %v10 = getelementptr i8, ptr %arguments, i64 304
  %v11 = load i64, ptr %v10, align 1
  %v12 = getelementptr i8, ptr %arguments, i64 216
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 312
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 96
  %v17 = load ptr, ptr %v16, align 1
  %v18 = mul i64 %v3, 24
  %v19 = getelementptr i8, ptr %v17, i64 %v18
  %v20 = getelementptr i8, ptr %arguments, i64 352
  %v21 = load i64, ptr %v20, align 1
  %v22 = load i64, ptr %segment, align 1
  %v23 = getelementptr i8, ptr %segment, i64 8
  %v24 = load i64, ptr %v23, align 1
  %v25 = getelementptr i8, ptr %segment, i64 16
  %v26 = load i64, ptr %v25, align 1
  %v27 = getelementptr i8, ptr %segment, i64 24
  %v28 = load i64, ptr %v27, align 1
  %v29 = getelementptr i8, ptr %arguments, i64 128
  %v30 = load ptr, ptr %v29, align 1
  %v31 = getelementptr i8, ptr %v30, i64 %v7
  %v32 = getelementptr i8, ptr %v31, i64 %v28
  %v33 = load i64, ptr %v32, align 1
  %v34 = icmp eq i64 %v33, -9223372036854775808
  %v35 = select i1 %v34, i64 %v22, i64 %v24
  %v36 = icmp eq i64 %v33, -9223372036854775808
  %v37 = select i1 %v36, i64 %v33, i64 %v33
  %v38 = add i64 %v37, %v1
  %v39 = load i64, ptr %v19, align 1
  %v40 = getelementptr i8, ptr %v19, i64 8
  %v41 = load i64, ptr %v40, align 1
  %v42 = getelementptr i8, ptr %v19, i64 16
  %v43 = load i64, ptr %v42, align 1
  %v44 = call i64 @llvm.smax.i64(i64 %v39, i64 %v22)
  %v45 = call i64 @llvm.smin.i64(i64 %v44, i64 %v35)
  %v46 = call i64 @llvm.smax.i64(i64 %v41, i64 %v45)
  %v47 = call i64 @llvm.smin.i64(i64 %v46, i64 %v35)
  %v48 = getelementptr i8, ptr %arguments, i64 32
  %v49 = load ptr, ptr %v48, align 1
  %v50 = getelementptr i8, ptr %arguments, i64 144
  %v51 = load i64, ptr %v50, align 1
  %v52 = mul i64 %image, %v51
  %v53 = getelementptr i8, ptr %v49, i64 %v52
  %v54 = getelementptr i8, ptr %arguments, i64 40
  %v55 = load ptr, ptr %v54, align 1
  %v56 = getelementptr i8, ptr %arguments, i64 240
  %v57 = load i64, ptr %v56, align 1
  %v58 = mul i64 %image, %v57
  %v59 = getelementptr i8, ptr %v55, i64 %v58
  %v60 = getelementptr i8, ptr %v53, i64 %v38
  %v61 = mul i64 %v22, %v9
  %v62 = getelementptr i8, ptr %v60, i64 %v61
  %v63 = getelementptr i8, ptr %v59, i64 %v26
  %v64 = mul i64 %v22, %v11
  %v65 = getelementptr i8, ptr %v63, i64 %v64
  br label %loop66
loop66:
  %loop66.index = phi i64 [ 0, %entry ], [ %v186, %when181.end ]
  %loop66.chain = phi ptr [ %chain, %entry ], [ %v185, %when181.end ]
  %loop66.more = icmp slt i64 %loop66.index, %panels
  br i1 %loop66.more, label %loop66.body, label %loop66.end
loop66.body:
  %v67 = add i64 %group, %loop66.index
  %v68 = mul i64 %v67, 4
  %v69 = getelementptr i8, ptr %arguments, i64 336
  %v70 = load i64, ptr %v69, align 1
  %v71 = sub i64 %v70, 4
  %v72 = call i64 @llvm.smin.i64(i64 %v68, i64 %v71)
  %v73 = mul i64 %v72, 4
  %v74 = getelementptr i8, ptr %v62, i64 %v73
  %v75 = mul i64 %v72, 4
  %v76 = getelementptr i8, ptr %v65, i64 %v75
  %v77 = load <4 x float>, ptr %loop66.chain, align 1
  %v78 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v77
  %v79 = getelementptr i8, ptr %loop66.chain, i64 16
  %v80 = load <4 x float>, ptr %v79, align 1
  %v81 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v80
  %v82 = sub i64 %v45, %v22
  br label %loop83
loop83:
  %loop83.index = phi i64 [ 0, %loop66.body ], [ %v121, %loop114.end ]
  %loop83.x0 = phi ptr [ %v74, %loop66.body ], [ %v119, %loop114.end ]
  %loop83.y = phi ptr [ %v76, %loop66.body ], [ %v120, %loop114.end ]
  %loop83.sum0 = phi <4 x float> [ %v78, %loop66.body ], [ %loop98.sum0, %loop114.end ]
  %loop83.sum1 = phi <4 x float> [ %v81, %loop66.body ], [ %loop114.sum1, %loop114.end ]
  %loop83.more = icmp slt i64 %loop83.index, %v82
  br i1 %loop83.more, label %loop83.body, label %loop83.end
loop83.body:
  %v84 = add i64 %v22, %loop83.index
  %v85 = load <4 x float>, ptr %loop83.y, align 1
  %v86 = getelementptr i8, ptr %loop83.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v86, i32 0, i32 2, i32 1)
  %v87 = getelementptr i8, ptr %loop83.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v87, i32 0, i32 2, i32 1)
  %v88 = getelementptr i8, ptr %v19, i64 24
  %v89 = load i64, ptr %v88, align 1
  %v90 = getelementptr i8, ptr %v88, i64 8
  %v91 = load i64, ptr %v90, align 1
  %v92 = getelementptr i8, ptr %v88, i64 16
  %v93 = load i64, ptr %v92, align 1
  %v94 = sub i64 %v84, %v89
  %v95 = sub i64 %v91, %v89
  %v96 = icmp ult i64 %v94, %v95
  %v97 = select i1 %v96, i64 1, i64 0
  br label %loop98
loop98:
  %loop98.index = phi i64 [ 0, %loop83.body ], [ %v103, %loop98.body ]
  %loop98.sum0 = phi <4 x float> [ %loop83.sum0, %loop83.body ], [ %v102, %loop98.body ]
  %loop98.more = icmp slt i64 %loop98.index, %v97
  br i1 %loop98.more, label %loop98.body, label %loop98.end
loop98.body:
  %v99 = mul i64 %v21, 0
  %v100 = getelementptr i8, ptr %loop83.x0, i64 %v99
  %v101 = load <4 x float>, ptr %v100, align 1
  %v102 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v101, <4 x float> %v85, <4 x float> %loop98.sum0)
  %v103 = add i64 %loop98.index, 1
  br label %loop98
loop98.end:
  %v104 = getelementptr i8, ptr %v19, i64 48
  %v105 = load i64, ptr %v104, align 1
  %v106 = getelementptr i8, ptr %v104, i64 8
  %v107 = load i64, ptr %v106, align 1
  %v108 = getelementptr i8, ptr %v104, i64 16
  %v109 = load i64, ptr %v108, align 1
  %v110 = sub i64 %v84, %v105
  %v111 = sub i64 %v107, %v105
  %v112 = icmp ult i64 %v110, %v111
  %v113 = select i1 %v112, i64 1, i64 0
  br label %loop114
loop114:
  %loop114.index = phi i64 [ 0, %loop98.end ], [ %v118, %loop114.body ]
  %loop114.sum1 = phi <4 x float> [ %loop83.sum1, %loop98.end ], [ %v117, %loop114.body ]
  %loop114.more = icmp slt i64 %loop114.index, %v113
  br i1 %loop114.more, label %loop114.body, label %loop114.end
loop114.body:
  %v115 = getelementptr i8, ptr %loop83.x0, i64 %v21
  %v116 = load <4 x float>, ptr %v115, align 1
  %v117 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v116, <4 x float> %v85, <4 x float> %loop114.sum1)
  %v118 = add i64 %loop114.index, 1
  br label %loop114
loop114.end:
  %v119 = getelementptr i8, ptr %loop83.x0, i64 %v9
  %v120 = getelementptr i8, ptr %loop83.y, i64 %v11
  %v121 = add i64 %loop83.index, 1
  br label %loop83
loop83.end:
  %v122 = sub i64 %v47, %v45
  %v123 = call i64 @llvm.smin.i64(i64 %v122, i64 1)
  br label %loop124
loop124:
  %loop124.index = phi i64 [ 0, %loop83.end ], [ %v140, %loop128.end ]
  %loop124.x0 = phi ptr [ %loop83.x0, %loop83.end ], [ %loop128.x0, %loop128.end ]
  %loop124.y = phi ptr [ %loop83.y, %loop83.end ], [ %loop128.y, %loop128.end ]
  %loop124.sum0 = phi <4 x float> [ %loop83.sum0, %loop83.end ], [ %loop128.sum0, %loop128.end ]
  %loop124.sum1 = phi <4 x float> [ %loop83.sum1, %loop83.end ], [ %loop128.sum1, %loop128.end ]
  %loop124.more = icmp slt i64 %loop124.index, %v123
  br i1 %loop124.more, label %loop124.body, label %loop124.end
loop124.body:
  %v125 = mul i64 %v21, 0
  %v126 = getelementptr i8, ptr %loop124.x0, i64 %v125
  %v127 = load <4 x float>, ptr %v126, align 1
  br label %loop128
loop128:
  %loop128.index = phi i64 [ 0, %loop124.body ], [ %v139, %loop128.body ]
  %loop128.x0 = phi ptr [ %loop124.x0, %loop124.body ], [ %v137, %loop128.body ]
  %loop128.y = phi ptr [ %loop124.y, %loop124.body ], [ %v138, %loop128.body ]
  %loop128.sum0 = phi <4 x float> [ %loop124.sum0, %loop124.body ], [ %v135, %loop128.body ]
  %loop128.sum1 = phi <4 x float> [ %loop124.sum1, %loop124.body ], [ %v136, %loop128.body ]
  %loop128.held0_0 = phi <4 x float> [ %v127, %loop124.body ], [ %v134, %loop128.body ]
  %loop128.more = icmp slt i64 %loop128.index, %v122
  br i1 %loop128.more, label %loop128.body, label %loop128.end
loop128.body:
  %v129 = load <4 x float>, ptr %loop128.y, align 1
  %v130 = getelementptr i8, ptr %loop128.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v130, i32 0, i32 2, i32 1)
  %v131 = getelementptr i8, ptr %loop128.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v131, i32 0, i32 2, i32 1)
  %v132 = call i64 asm "", "=r,0"(i64 %v21)
  %v133 = getelementptr i8, ptr %loop128.x0, i64 %v132
  %v134 = load <4 x float>, ptr %v133, align 1
  %v135 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop128.held0_0, <4 x float> %v129, <4 x float> %loop128.sum0)
  %v136 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v134, <4 x float> %v129, <4 x float> %loop128.sum1)
  %v137 = getelementptr i8, ptr %loop128.x0, i64 %v9
  %v138 = getelementptr i8, ptr %loop128.y, i64 %v11
  %v139 = add i64 %loop128.index, 1
  br label %loop128
loop128.end:
  %v140 = add i64 %loop124.index, 1
  br label %loop124
loop124.end:
  %v141 = sub i64 %v35, %v47
  br label %loop142
loop142:
  %loop142.index = phi i64 [ 0, %loop124.end ], [ %v180, %loop173.end ]
  %loop142.x0 = phi ptr [ %loop124.x0, %loop124.end ], [ %v178, %loop173.end ]
  %loop142.y = phi ptr [ %loop124.y, %loop124.end ], [ %v179, %loop173.end ]
  %loop142.sum0 = phi <4 x float> [ %loop124.sum0, %loop124.end ], [ %loop157.sum0, %loop173.end ]
  %loop142.sum1 = phi <4 x float> [ %loop124.sum1, %loop124.end ], [ %loop173.sum1, %loop173.end ]
  %loop142.more = icmp slt i64 %loop142.index, %v141
  br i1 %loop142.more, label %loop142.body, label %loop142.end
loop142.body:
  %v143 = add i64 %v47, %loop142.index
  %v144 = load <4 x float>, ptr %loop142.y, align 1
  %v145 = getelementptr i8, ptr %loop142.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v145, i32 0, i32 2, i32 1)
  %v146 = getelementptr i8, ptr %loop142.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v146, i32 0, i32 2, i32 1)
  %v147 = getelementptr i8, ptr %v19, i64 24
  %v148 = load i64, ptr %v147, align 1
  %v149 = getelementptr i8, ptr %v147, i64 8
  %v150 = load i64, ptr %v149, align 1
  %v151 = getelementptr i8, ptr %v147, i64 16
  %v152 = load i64, ptr %v151, align 1
  %v153 = sub i64 %v143, %v148
  %v154 = sub i64 %v150, %v148
  %v155 = icmp ult i64 %v153, %v154
  %v156 = select i1 %v155, i64 1, i64 0
  br label %loop157
loop157:
  %loop157.index = phi i64 [ 0, %loop142.body ], [ %v162, %loop157.body ]
  %loop157.sum0 = phi <4 x float> [ %loop142.sum0, %loop142.body ], [ %v161, %loop157.body ]
  %loop157.more = icmp slt i64 %loop157.index, %v156
  br i1 %loop157.more, label %loop157.body, label %loop157.end
loop157.body:
  %v158 = mul i64 %v21, 0
  %v159 = getelementptr i8, ptr %loop142.x0, i64 %v158
  %v160 = load <4 x float>, ptr %v159, align 1
  %v161 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v160, <4 x float> %v144, <4 x float> %loop157.sum0)
  %v162 = add i64 %loop157.index, 1
  br label %loop157
loop157.end:
  %v163 = getelementptr i8, ptr %v19, i64 48
  %v164 = load i64, ptr %v163, align 1
  %v165 = getelementptr i8, ptr %v163, i64 8
  %v166 = load i64, ptr %v165, align 1
  %v167 = getelementptr i8, ptr %v163, i64 16
  %v168 = load i64, ptr %v167, align 1
  %v169 = sub i64 %v143, %v164
  %v170 = sub i64 %v166, %v164
  %v171 = icmp ult i64 %v169, %v170
  %v172 = select i1 %v171, i64 1, i64 0
  br label %loop173
loop173:
  %loop173.index = phi i64 [ 0, %loop157.end ], [ %v177, %loop173.body ]
  %loop173.sum1 = phi <4 x float> [ %loop142.sum1, %loop157.end ], [ %v176, %loop173.body ]
  %loop173.more = icmp slt i64 %loop173.index, %v172
  br i1 %loop173.more, label %loop173.body, label %loop173.end
loop173.body:
  %v174 = getelementptr i8, ptr %loop142.x0, i64 %v21
  %v175 = load <4 x float>, ptr %v174, align 1
  %v176 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v175, <4 x float> %v144, <4 x float> %loop173.sum1)
  %v177 = add i64 %loop173.index, 1
  br label %loop173
loop173.end:
  %v178 = getelementptr i8, ptr %loop142.x0, i64 %v9
  %v179 = getelementptr i8, ptr %loop142.y, i64 %v11
  %v180 = add i64 %loop142.index, 1
  br label %loop142
loop142.end:
  br i1 %v36, label %when181, label %when181.else
when181:
  br i1 %begins, label %when182, label %when182.end
when182:
  store <4 x float> zeroinitializer, ptr %loop66.chain, align 1
  %v183 = getelementptr i8, ptr %loop66.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v183, align 1
  br label %when182.end
when182.end:
  br label %when181.end
when181.else:
  store <4 x float> %loop142.sum0, ptr %loop66.chain, align 1
  %v184 = getelementptr i8, ptr %loop66.chain, i64 16
  store <4 x float> %loop142.sum1, ptr %v184, align 1
  br label %when181.end
when181.end:
  %v185 = getelementptr i8, ptr %loop66.chain, i64 %chain_step
  %v186 = add i64 %loop66.index, 1
  br label %loop66
loop66.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

