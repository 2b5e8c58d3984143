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
  %v12 = getelementptr i8, ptr %arguments, i64 224
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %arguments, i64 320
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %arguments, i64 368
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %arguments, i64 232
  %v19 = load i64, ptr %v18, align 1
  %v20 = getelementptr i8, ptr %arguments, i64 328
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
  %v56 = getelementptr i8, ptr %arguments, i64 160
  %v57 = load i64, ptr %v56, align 1
  %v58 = mul i64 %image, %v57
  %v59 = getelementptr i8, ptr %v55, i64 %v58
  %v60 = getelementptr i8, ptr %v59, i64 %v3
  %v61 = getelementptr i8, ptr %arguments, i64 40
  %v62 = load ptr, ptr %v61, align 1
  %v63 = getelementptr i8, ptr %arguments, i64 256
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
  %loop73.index = phi i64 [ 0, %entry ], [ %v185, %when180.end ]
  %loop73.chain = phi ptr [ %chain, %entry ], [ %v184, %when180.end ]
  %loop73.more = icmp slt i64 %loop73.index, %panels
  br i1 %loop73.more, label %loop73.body, label %loop73.end
loop73.body:
  %v74 = add i64 %group, %loop73.index
  %v75 = mul i64 %v74, 4
  %v76 = getelementptr i8, ptr %arguments, i64 352
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
  %loop90.index = phi i64 [ 0, %loop73.body ], [ %v124, %loop117.end ]
  %loop90.x0 = phi ptr [ %v81, %loop73.body ], [ %v122, %loop117.end ]
  %loop90.y = phi ptr [ %v83, %loop73.body ], [ %v123, %loop117.end ]
  %loop90.sum0 = phi <4 x float> [ %v85, %loop73.body ], [ %loop103.sum0, %loop117.end ]
  %loop90.sum1 = phi <4 x float> [ %v88, %loop73.body ], [ %loop117.sum1, %loop117.end ]
  %loop90.more = icmp slt i64 %loop90.index, %v89
  br i1 %loop90.more, label %loop90.body, label %loop90.end
loop90.body:
  %v91 = add i64 %v34, %loop90.index
  %v92 = load <4 x float>, ptr %loop90.y, align 1
  %v93 = getelementptr i8, ptr %loop90.y, i64 %v21
  call void @llvm.prefetch.p0(ptr %v93, i32 0, i32 2, i32 1)
  %v94 = getelementptr i8, ptr %loop90.x0, i64 %v19
  call void @llvm.prefetch.p0(ptr %v94, i32 0, i32 2, i32 1)
  %v95 = getelementptr i8, ptr %v25, i64 24
  %v96 = load i64, ptr %v95, align 1
  %v97 = getelementptr i8, ptr %v25, i64 32
  %v98 = load i64, ptr %v97, align 1
  %v99 = sub i64 %v91, %v96
  %v100 = sub i64 %v98, %v96
  %v101 = icmp ult i64 %v99, %v100
  %v102 = select i1 %v101, i64 1, i64 0
  br label %loop103
loop103:
  %loop103.index = phi i64 [ 0, %loop90.body ], [ %v108, %loop103.body ]
  %loop103.sum0 = phi <4 x float> [ %loop90.sum0, %loop90.body ], [ %v107, %loop103.body ]
  %loop103.more = icmp slt i64 %loop103.index, %v102
  br i1 %loop103.more, label %loop103.body, label %loop103.end
loop103.body:
  %v104 = mul i64 %v17, 0
  %v105 = getelementptr i8, ptr %loop90.x0, i64 %v104
  %v106 = load <4 x float>, ptr %v105, align 1
  %v107 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v106, <4 x float> %v92, <4 x float> %loop103.sum0)
  %v108 = add i64 %loop103.index, 1
  br label %loop103
loop103.end:
  %v109 = getelementptr i8, ptr %v25, i64 48
  %v110 = load i64, ptr %v109, align 1
  %v111 = getelementptr i8, ptr %v25, i64 56
  %v112 = load i64, ptr %v111, align 1
  %v113 = sub i64 %v91, %v110
  %v114 = sub i64 %v112, %v110
  %v115 = icmp ult i64 %v113, %v114
  %v116 = select i1 %v115, i64 1, i64 0
  br label %loop117
loop117:
  %loop117.index = phi i64 [ 0, %loop103.end ], [ %v121, %loop117.body ]
  %loop117.sum1 = phi <4 x float> [ %loop90.sum1, %loop103.end ], [ %v120, %loop117.body ]
  %loop117.more = icmp slt i64 %loop117.index, %v116
  br i1 %loop117.more, label %loop117.body, label %loop117.end
loop117.body:
  %v118 = getelementptr i8, ptr %loop90.x0, i64 %v17
  %v119 = load <4 x float>, ptr %v118, align 1
  %v120 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v119, <4 x float> %v92, <4 x float> %loop117.sum1)
  %v121 = add i64 %loop117.index, 1
  br label %loop117
loop117.end:
  %v122 = getelementptr i8, ptr %loop90.x0, i64 %v13
  %v123 = getelementptr i8, ptr %loop90.y, i64 %v15
  %v124 = add i64 %loop90.index, 1
  br label %loop90
loop90.end:
  %v125 = sub i64 %v53, %v51
  %v126 = call i64 @llvm.smin.i64(i64 %v125, i64 1)
  br label %loop127
loop127:
  %loop127.index = phi i64 [ 0, %loop90.end ], [ %v143, %loop131.end ]
  %loop127.x0 = phi ptr [ %loop90.x0, %loop90.end ], [ %loop131.x0, %loop131.end ]
  %loop127.y = phi ptr [ %loop90.y, %loop90.end ], [ %loop131.y, %loop131.end ]
  %loop127.sum0 = phi <4 x float> [ %loop90.sum0, %loop90.end ], [ %loop131.sum0, %loop131.end ]
  %loop127.sum1 = phi <4 x float> [ %loop90.sum1, %loop90.end ], [ %loop131.sum1, %loop131.end ]
  %loop127.more = icmp slt i64 %loop127.index, %v126
  br i1 %loop127.more, label %loop127.body, label %loop127.end
loop127.body:
  %v128 = mul i64 %v17, 0
  %v129 = getelementptr i8, ptr %loop127.x0, i64 %v128
  %v130 = load <4 x float>, ptr %v129, align 1
  br label %loop131
loop131:
  %loop131.index = phi i64 [ 0, %loop127.body ], [ %v142, %loop131.body ]
  %loop131.x0 = phi ptr [ %loop127.x0, %loop127.body ], [ %v140, %loop131.body ]
  %loop131.y = phi ptr [ %loop127.y, %loop127.body ], [ %v141, %loop131.body ]
  %loop131.sum0 = phi <4 x float> [ %loop127.sum0, %loop127.body ], [ %v138, %loop131.body ]
  %loop131.sum1 = phi <4 x float> [ %loop127.sum1, %loop127.body ], [ %v139, %loop131.body ]
  %loop131.held0_0 = phi <4 x float> [ %v130, %loop127.body ], [ %v137, %loop131.body ]
  %loop131.more = icmp slt i64 %loop131.index, %v125
  br i1 %loop131.more, label %loop131.body, label %loop131.end
loop131.body:
  %v132 = load <4 x float>, ptr %loop131.y, align 1
  %v133 = getelementptr i8, ptr %loop131.y, i64 %v21
  call void @llvm.prefetch.p0(ptr %v133, i32 0, i32 2, i32 1)
  %v134 = getelementptr i8, ptr %loop131.x0, i64 %v19
  call void @llvm.prefetch.p0(ptr %v134, i32 0, i32 2, i32 1)
  %v135 = call i64 asm "", "=r,0"(i64 %v17)
  %v136 = getelementptr i8, ptr %loop131.x0, i64 %v135
  %v137 = load <4 x float>, ptr %v136, align 1
  %v138 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop131.held0_0, <4 x float> %v132, <4 x float> %loop131.sum0)
  %v139 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v137, <4 x float> %v132, <4 x float> %loop131.sum1)
  %v140 = getelementptr i8, ptr %loop131.x0, i64 %v13
  %v141 = getelementptr i8, ptr %loop131.y, i64 %v15
  %v142 = add i64 %loop131.index, 1
  br label %loop131
loop131.end:
  %v143 = add i64 %loop127.index, 1
  br label %loop127
loop127.end:
  %v144 = sub i64 %v44, %v53
  br label %loop145
loop145:
  %loop145.index = phi i64 [ 0, %loop127.end ], [ %v179, %loop172.end ]
  %loop145.x0 = phi ptr [ %loop127.x0, %loop127.end ], [ %v177, %loop172.end ]
  %loop145.y = phi ptr [ %loop127.y, %loop127.end ], [ %v178, %loop172.end ]
  %loop145.sum0 = phi <4 x float> [ %loop127.sum0, %loop127.end ], [ %loop158.sum0, %loop172.end ]
  %loop145.sum1 = phi <4 x float> [ %loop127.sum1, %loop127.end ], [ %loop172.sum1, %loop172.end ]
  %loop145.more = icmp slt i64 %loop145.index, %v144
  br i1 %loop145.more, label %loop145.body, label %loop145.end
loop145.body:
  %v146 = add i64 %v53, %loop145.index
  %v147 = load <4 x float>, ptr %loop145.y, align 1
  %v148 = getelementptr i8, ptr %loop145.y, i64 %v21
  call void @llvm.prefetch.p0(ptr %v148, i32 0, i32 2, i32 1)
  %v149 = getelementptr i8, ptr %loop145.x0, i64 %v19
  call void @llvm.prefetch.p0(ptr %v149, i32 0, i32 2, i32 1)
  %v150 = getelementptr i8, ptr %v25, i64 24
  %v151 = load i64, ptr %v150, align 1
  %v152 = getelementptr i8, ptr %v25, i64 32
  %v153 = load i64, ptr %v152, align 1
  %v154 = sub i64 %v146, %v151
  %v155 = sub i64 %v153, %v151
  %v156 = icmp ult i64 %v154, %v155
  %v157 = select i1 %v156, i64 1, i64 0
  br label %loop158
loop158:
  %loop158.index = phi i64 [ 0, %loop145.body ], [ %v163, %loop158.body ]
  %loop158.sum0 = phi <4 x float> [ %loop145.sum0, %loop145.body ], [ %v162, %loop158.body ]
  %loop158.more = icmp slt i64 %loop158.index, %v157
  br i1 %loop158.more, label %loop158.body, label %loop158.end
loop158.body:
  %v159 = mul i64 %v17, 0
  %v160 = getelementptr i8, ptr %loop145.x0, i64 %v159
  %v161 = load <4 x float>, ptr %v160, align 1
  %v162 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v161, <4 x float> %v147, <4 x float> %loop158.sum0)
  %v163 = add i64 %loop158.index, 1
  br label %loop158
loop158.end:
  %v164 = getelementptr i8, ptr %v25, i64 48
  %v165 = load i64, ptr %v164, align 1
  %v166 = getelementptr i8, ptr %v25, i64 56
  %v167 = load i64, ptr %v166, align 1
  %v168 = sub i64 %v146, %v165
  %v169 = sub i64 %v167, %v165
  %v170 = icmp ult i64 %v168, %v169
  %v171 = select i1 %v170, i64 1, i64 0
  br label %loop172
loop172:
  %loop172.index = phi i64 [ 0, %loop158.end ], [ %v176, %loop172.body ]
  %loop172.sum1 = phi <4 x float> [ %loop145.sum1, %loop158.end ], [ %v175, %loop172.body ]
  %loop172.more = icmp slt i64 %loop172.index, %v171
  br i1 %loop172.more, label %loop172.body, label %loop172.end
loop172.body:
  %v173 = getelementptr i8, ptr %loop145.x0, i64 %v17
  %v174 = load <4 x float>, ptr %v173, align 1
  %v175 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v174, <4 x float> %v147, <4 x float> %loop172.sum1)
  %v176 = add i64 %loop172.index, 1
  br label %loop172
loop172.end:
  %v177 = getelementptr i8, ptr %loop145.x0, i64 %v13
  %v178 = getelementptr i8, ptr %loop145.y, i64 %v15
  %v179 = add i64 %loop145.index, 1
  br label %loop145
loop145.end:
  br i1 %v45, label %when180, label %when180.else
when180:
  br i1 %begins, label %when181, label %when181.end
when181:
  store <4 x float> zeroinitializer, ptr %loop73.chain, align 1
  %v182 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v182, align 1
  br label %when181.end
when181.end:
  br label %when180.end
when180.else:
  store <4 x float> %loop145.sum0, ptr %loop73.chain, align 1
  %v183 = getelementptr i8, ptr %loop73.chain, i64 16
  store <4 x float> %loop145.sum1, ptr %v183, align 1
  br label %when180.end
when180.end:
  %v184 = getelementptr i8, ptr %loop73.chain, i64 %chain_step
  %v185 = add i64 %loop73.index, 1
  br label %loop73
loop73.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

