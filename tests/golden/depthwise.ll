define internal void @depthwise(ptr %arguments, ptr %chain, i64 %chain_step, i64 %panels, i1 %begins, i64 %image, ptr %segment, ptr %tap, i64 %group) #0 {
entry:
  %v1 = load i64, ptr %tap, align 1
  %v2 = getelementptr i8, ptr %tap, i64 8
  %v3 = load i64, ptr %v2, align 1
  %v4 = getelementptr i8, ptr %tap, i64 16
  %v5 = load i64, ptr %v4, align 1
  %v6 = getelementptr i8, ptr %tap, i64 24
  %v7 = load i64, ptr %v6, align 1
  %v8 = getelementptr i8, ptr %arguments, i64 224
  %v9 = load i64, ptr %v8, align 1
  %v10 = getelementptr i8, ptr %arguments, i64 328
  %v11 = load i64, ptr %v10, align 1
  %v12 = getelementptr i8, ptr %arguments, i64 240
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 344
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 104
  %v17 = load ptr, ptr %v16, align 1
  %v18 = mul i64 %v3, 24
  %v19 = getelementptr i8, ptr %v17, i64 %v18
  %v20 = getelementptr i8, ptr %arguments, i64 384
  %v21 = load i64, ptr %v20, align 1
  %v22 = load i64, ptr %segment, align 1
  %v23 = getelementptr i8, ptr %segment, i64 8
  %v24 = load i64, ptr %v23, align 1
  %v25 = getelementptr i8, ptr %segment, i64 16
  %v26 = load i64, ptr %v25, align 1
  %v27 = getelementptr i8, ptr %segment, i64 24
  %v28 = load i64, ptr %v27, align 1
  %v29 = getelementptr i8, ptr %segment, i64 32
  %v30 = load i64, ptr %v29, align 1
  %v31 = getelementptr i8, ptr %segment, i64 40
  %v32 = load i64, ptr %v31, align 1
  %v33 = getelementptr i8, ptr %segment, i64 48
  %v34 = load i64, ptr %v33, align 1
  %v35 = getelementptr i8, ptr %arguments, i64 136
  %v36 = load ptr, ptr %v35, align 1
  %v37 = getelementptr i8, ptr %v36, i64 %v7
  %v38 = getelementptr i8, ptr %v37, i64 %v30
  %v39 = load i64, ptr %v38, align 1
  %v40 = icmp eq i64 %v39, 9223372036854775807
  %v41 = select i1 %v40, i64 %v24, i64 %v26
  %v42 = icmp eq i64 %v39, 9223372036854775807
  %v43 = select i1 %v42, i64 %v39, i64 %v39
  %v44 = add i64 %v43, %v1
  %v45 = load i64, ptr %v19, align 1
  %v46 = getelementptr i8, ptr %v19, i64 8
  %v47 = load i64, ptr %v46, align 1
  %v48 = getelementptr i8, ptr %v19, i64 16
  %v49 = load i64, ptr %v48, align 1
  %v50 = call i64 @llvm.smax.i64(i64 %v45, i64 %v24)
  %v51 = call i64 @llvm.smin.i64(i64 %v50, i64 %v41)
  %v52 = call i64 @llvm.smax.i64(i64 %v47, i64 %v51)
  %v53 = call i64 @llvm.smin.i64(i64 %v52, i64 %v41)
  %v54 = add i64 %image, %v22
  %v55 = getelementptr i8, ptr %arguments, i64 40
  %v56 = load ptr, ptr %v55, align 1
  %v57 = getelementptr i8, ptr %arguments, i64 160
  %v58 = load i64, ptr %v57, align 1
  %v59 = mul i64 %v54, %v58
  %v60 = getelementptr i8, ptr %v56, i64 %v59
  %v61 = getelementptr i8, ptr %arguments, i64 48
  %v62 = load ptr, ptr %v61, align 1
  %v63 = getelementptr i8, ptr %arguments, i64 264
  %v64 = load i64, ptr %v63, align 1
  %v65 = mul i64 %v54, %v64
  %v66 = getelementptr i8, ptr %v62, i64 %v65
  %v67 = getelementptr i8, ptr %v60, i64 %v44
  %v68 = mul i64 %v24, %v9
  %v69 = getelementptr i8, ptr %v67, i64 %v68
  %v70 = getelementptr i8, ptr %v66, i64 %v28
  %v71 = mul i64 %v24, %v11
  %v72 = getelementptr i8, ptr %v70, i64 %v71
  br label %loop73
loop73:
  %loop73.index = phi i64 [ 0, %entry ], [ %v193, %when188.end ]
  %loop73.chain = phi ptr [ %chain, %entry ], [ %v192, %when188.end ]
  %loop73.more = icmp slt i64 %loop73.index, %panels
  br i1 %loop73.more, label %loop73.body, label %loop73.end
loop73.body:
  %v74 = add i64 %group, %loop73.index
  %v75 = mul i64 %v74, 4
  %v76 = getelementptr i8, ptr %arguments, i64 368
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
  %v89 = sub i64 %v51, %v24
  br label %loop90
loop90:
  %loop90.index = phi i64 [ 0, %loop73.body ], [ %v128, %loop121.end ]
  %loop90.x0 = phi ptr [ %v81, %loop73.body ], [ %v126, %loop121.end ]
  %loop90.y = phi ptr [ %v83, %loop73.body ], [ %v127, %loop121.end ]
  %loop90.sum0 = phi <4 x float> [ %v85, %loop73.body ], [ %loop105.sum0, %loop121.end ]
  %loop90.sum1 = phi <4 x float> [ %v88, %loop73.body ], [ %loop121.sum1, %loop121.end ]
  %loop90.more = icmp slt i64 %loop90.index, %v89
  br i1 %loop90.more, label %loop90.body, label %loop90.end
loop90.body:
  %v91 = add i64 %v24, %loop90.index
  %v92 = load <4 x float>, ptr %loop90.y, align 1
  %v93 = getelementptr i8, ptr %loop90.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v93, i32 0, i32 2, i32 1)
  %v94 = getelementptr i8, ptr %loop90.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v94, i32 0, i32 2, i32 1)
  %v95 = getelementptr i8, ptr %v19, i64 24
  %v96 = load i64, ptr %v95, align 1
  %v97 = getelementptr i8, ptr %v95, i64 8
  %v98 = load i64, ptr %v97, align 1
  %v99 = getelementptr i8, ptr %v95, i64 16
  %v100 = load i64, ptr %v99, align 1
  %v101 = sub i64 %v91, %v96
  %v102 = sub i64 %v98, %v96
  %v103 = icmp ult i64 %v101, %v102
  %v104 = select i1 %v103, i64 1, i64 0
  br label %loop105
loop105:
  %loop105.index = phi i64 [ 0, %loop90.body ], [ %v110, %loop105.body ]
  %loop105.sum0 = phi <4 x float> [ %loop90.sum0, %loop90.body ], [ %v109, %loop105.body ]
  %loop105.more = icmp slt i64 %loop105.index, %v104
  br i1 %loop105.more, label %loop105.body, label %loop105.end
loop105.body:
  %v106 = mul i64 %v21, 0
  %v107 = getelementptr i8, ptr %loop90.x0, i64 %v106
  %v108 = load <4 x float>, ptr %v107, align 1
  %v109 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v108, <4 x float> %v92, <4 x float> %loop105.sum0)
  %v110 = add i64 %loop105.index, 1
  br label %loop105
loop105.end:
  %v111 = getelementptr i8, ptr %v19, i64 48
  %v112 = load i64, ptr %v111, align 1
  %v113 = getelementptr i8, ptr %v111, i64 8
  %v114 = load i64, ptr %v113, align 1
  %v115 = getelementptr i8, ptr %v111, i64 16
  %v116 = load i64, ptr %v115, align 1
  %v117 = sub i64 %v91, %v112
  %v118 = sub i64 %v114, %v112
  %v119 = icmp ult i64 %v117, %v118
  %v120 = select i1 %v119, i64 1, i64 0
  br label %loop121
loop121:
  %loop121.index = phi i64 [ 0, %loop105.end ], [ %v125, %loop121.body ]
  %loop121.sum1 = phi <4 x float> [ %loop90.sum1, %loop105.end ], [ %v124, %loop121.body ]
  %loop121.more = icmp slt i64 %loop121.index, %v120
  br i1 %loop121.more, label %loop121.body, label %loop121.end
loop121.body:
  %v122 = getelementptr i8, ptr %loop90.x0, i64 %v21
  %v123 = load <4 x float>, ptr %v122, align 1
  %v124 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v123, <4 x float> %v92, <4 x float> %loop121.sum1)
  %v125 = add i64 %loop121.index, 1
  br label %loop121
loop121.end:
  %v126 = getelementptr i8, ptr %loop90.x0, i64 %v9
  %v127 = getelementptr i8, ptr %loop90.y, i64 %v11
  %v128 = add i64 %loop90.index, 1
  br label %loop90
loop90.end:
  %v129 = sub i64 %v53, %v51
  %v130 = call i64 @llvm.smin.i64(i64 %v129, i64 1)
  br label %loop131
loop131:
  %loop131.index = phi i64 [ 0, %loop90.end ], [ %v147, %loop135.end ]
  %loop131.x0 = phi ptr [ %loop90.x0, %loop90.end ], [ %loop135.x0, %loop135.end ]
  %loop131.y = phi ptr [ %loop90.y, %loop90.end ], [ %loop135.y, %loop135.end ]
  %loop131.sum0 = phi <4 x float> [ %loop90.sum0, %loop90.end ], [ %loop135.sum0, %loop135.end ]
  %loop131.sum1 = phi <4 x float> [ %loop90.sum1, %loop90.end ], [ %loop135.sum1, %loop135.end ]
  %loop131.more = icmp slt i64 %loop131.index, %v130
  br i1 %loop131.more, label %loop131.body, label %loop131.end
loop131.body:
  %v132 = mul i64 %v21, 0
  %v133 = getelementptr i8, ptr %loop131.x0, i64 %v132
  %v134 = load <4 x float>, ptr %v133, align 1
  br label %loop135
loop135:
  %loop135.index = phi i64 [ 0, %loop131.body ], [ %v146, %loop135.body ]
  %loop135.x0 = phi ptr [ %loop131.x0, %loop131.body ], [ %v144, %loop135.body ]
  %loop135.y = phi ptr [ %loop131.y, %loop131.body ], [ %v145, %loop135.body ]
  %loop135.sum0 = phi <4 x float> [ %loop131.sum0, %loop131.body ], [ %v142, %loop135.body ]
  %loop135.sum1 = phi <4 x float> [ %loop131.sum1, %loop131.body ], [ %v143, %loop135.body ]
  %loop135.held0_0 = phi <4 x float> [ %v134, %loop131.body ], [ %v141, %loop135.body ]
  %loop135.more = icmp slt i64 %loop135.index, %v129
  br i1 %loop135.more, label %loop135.body, label %loop135.end
loop135.body:
  %v136 = load <4 x float>, ptr %loop135.y, align 1
  %v137 = getelementptr i8, ptr %loop135.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v137, i32 0, i32 2, i32 1)
  %v138 = getelementptr i8, ptr %loop135.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v138, i32 0, i32 2, i32 1)
  %v139 = call i64 asm "", "=r,0"(i64 %v21)
  %v140 = getelementptr i8, ptr %loop135.x0, i64 %v139
  %v141 = load <4 x float>, ptr %v140, align 1
  %v142 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop135.held0_0, <4 x float> %v136, <4 x float> %loop135.sum0)
  %v143 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v141, <4 x float> %v136, <4 x float> %loop135.sum1)
  %v144 = getelementptr i8, ptr %loop135.x0, i64 %v9
  %v145 = getelementptr i8, ptr %loop135.y, i64 %v11
  %v146 = add i64 %loop135.index, 1
  br label %loop135
loop135.end:
  %v147 = add i64 %loop131.index, 1
  br label %loop131
loop131.end:
  %v148 = sub i64 %v41, %v53
  br label %loop149
loop149:
  %loop149.index = phi i64 [ 0, %loop131.end ], [ %v187, %loop180.end ]
  %loop149.x0 = phi ptr [ %loop131.x0, %loop131.end ], [ %v185, %loop180.end ]
  %loop149.y = phi ptr [ %loop131.y, %loop131.end ], [ %v186, %loop180.end ]
  %loop149.sum0 = phi <4 x float> [ %loop131.sum0, %loop131.end ], [ %loop164.sum0, %loop180.end ]
  %loop149.sum1 = phi <4 x float> [ %loop131.sum1, %loop131.end ], [ %loop180.sum1, %loop180.end ]
  %loop149.more = icmp slt i64 %loop149.index, %v148
  br i1 %loop149.more, label %loop149.body, label %loop149.end
loop149.body:
  %v150 = add i64 %v53, %loop149.index
  %v151 = load <4 x float>, ptr %loop149.y, align 1
  %v152 = getelementptr i8, ptr %loop149.y, i64 %v15
  call void @llvm.prefetch.p0(ptr %v152, i32 0, i32 2, i32 1)
  %v153 = getelementptr i8, ptr %loop149.x0, i64 %v13
  call void @llvm.prefetch.p0(ptr %v153, i32 0, i32 2, i32 1)
  %v154 = getelementptr i8, ptr %v19, i64 24
  %v155 = load i64, ptr %v154, align 1
  %v156 = getelementptr i8, ptr %v154, i64 8
  %v157 = load i64, ptr %v156, align 1
  %v158 = getelementptr i8, ptr %v154, i64 16
  %v159 = load i64, ptr %v158, align 1
  %v160 = sub i64 %v150, %v155
  %v161 = sub i64 %v157, %v155
  %v162 = icmp ult i64 %v160, %v161
  %v163 = select i1 %v162, i64 1, i64 0
  br label %loop164
loop164:
  %loop164.index = phi i64 [ 0, %loop149.body ], [ %v169, %loop164.body ]
  %loop164.sum0 = phi <4 x float> [ %loop149.sum0, %loop149.body ], [ %v168, %loop164.body ]
  %loop164.more = icmp slt i64 %loop164.index, %v163
  br i1 %loop164.more, label %loop164.body, label %loop164.end
loop164.body:
  %v165 = mul i64 %v21, 0
  %v166 = getelementptr i8, ptr %loop149.x0, i64 %v165
  %v167 = load <4 x float>, ptr %v166, align 1
  %v168 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v167, <4 x float> %v151, <4 x float> %loop164.sum0)
  %v169 = add i64 %loop164.index, 1
  br label %loop164
loop164.end:
  %v170 = getelementptr i8, ptr %v19, i64 48
  %v171 = load i64, ptr %v170, align 1
  %v172 = getelementptr i8, ptr %v170, i64 8
  %v173 = load i64, ptr %v172, align 1
  %v174 = getelementptr i8, ptr %v170, i64 16
  %v175 = load i64, ptr %v174, align 1
  %v176 = sub i64 %v150, %v171
  %v177 = sub i64 %v173, %v171
  %v178 = icmp ult i64 %v176, %v177
  %v179 = select i1 %v178, i64 1, i64 0
  br label %loop180
loop180:
  %loop180.index = phi i64 [ 0, %loop164.end ], [ %v184, %loop180.body ]
  %loop180.sum1 = phi <4 x float> [ %loop149.sum1, %loop164.end ], [ %v183, %loop180.body ]
  %loop180.more = icmp slt i64 %loop180.index, %v179
  br i1 %loop180.more, label %loop180.body, label %loop180.end
loop180.body:
  %v181 = getelementptr i8, ptr %loop149.x0, i64 %v21
  %v182 = load <4 x float>, ptr %v181, align 1
  %v183 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v182, <4 x float> %v151, <4 x float> %loop180.sum1)
  %v184 = add i64 %loop180.index, 1
  br label %loop180
loop180.end:
  %v185 = getelementptr i8, ptr %loop149.x0, i64 %v9
  %v186 = getelementptr i8, ptr %loop149.y, i64 %v11
  %v187 = add i64 %loop149.index, 1
  br label %loop149
loop149.end:
  br i1 %v42, label %when188, label %when188.else
when188:
  br i1 %begins, label %when189, label %when189.end
when189:
  store <4 x float> zeroinitializer, ptr %loop73.chain, align 1
  %v190 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v190, align 1
  br label %when189.end
when189.end:
  br label %when188.end
when188.else:
  store <4 x float> %loop149.sum0, ptr %loop73.chain, align 1
  %v191 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> %loop149.sum1, ptr %v191, align 1
  br label %when188.end
when188.end:
  %v192 = getelementptr i8, ptr %loop73.chain, i64 %chain_step
  %v193 = add i64 %loop73.index, 1
  br label %loop73
loop73.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

