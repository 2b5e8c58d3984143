define internal void @strip(ptr %arguments, ptr %chain, i64 %chain_step, i1 %begins, ptr %x, ptr %y, ptr %run, ptr %segments, i64 %group, i64 %panels) #0 {
entry:
  %v1 = getelementptr i8, ptr %arguments, i64 344
  %v2 = load i64, ptr %v1, align 1
  %v3 = getelementptr i8, ptr %arguments, i64 352
  %v4 = load i64, ptr %v3, align 1
  %v5 = getelementptr i8, ptr %arguments, i64 288
  %v6 = load i64, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %arguments, i64 472
  %v8 = load i64, ptr %v7, align 1
  %v9 = getelementptr i8, ptr %arguments, i64 480
  %v10 = load i64, ptr %v9, align 1
  %v11 = load i64, ptr %run, align 1
  %v12 = getelementptr i8, ptr %run, i64 8
  %v13 = load i64, ptr %v12, align 1
  %v14 = getelementptr i8, ptr %run, i64 16
  %v15 = load i64, ptr %v14, align 1
  %v16 = getelementptr i8, ptr %run, i64 24
  %v17 = load i64, ptr %v16, align 1
  %v18 = getelementptr i8, ptr %run, i64 32
  %v19 = load i64, ptr %v18, align 1
  %v20 = load i64, ptr %segments, align 1
  %v21 = getelementptr i8, ptr %segments, i64 8
  %v22 = load i64, ptr %v21, align 1
  %v23 = call i64 @llvm.smax.i64(i64 %v20, i64 %v11)
  %v24 = call i64 @llvm.smin.i64(i64 %v23, i64 %v13)
  %v25 = call i64 @llvm.smax.i64(i64 %v22, i64 %v24)
  %v26 = call i64 @llvm.smin.i64(i64 %v25, i64 %v13)
  %v27 = and i64 %v15, 1
  %v28 = icmp eq i64 %v27, 0
  %v29 = getelementptr i8, ptr %x, i64 %v19
  %v30 = mul i64 %v11, %v2
  %v31 = getelementptr i8, ptr %v29, i64 %v30
  %v32 = getelementptr i8, ptr %y, i64 %v17
  %v33 = mul i64 %v11, %v4
  %v34 = getelementptr i8, ptr %v32, i64 %v33
  br label %loop35
loop35:
  %loop35.index = phi i64 [ 0, %entry ], [ %v143, %when138.end ]
  %loop35.chain = phi ptr [ %chain, %entry ], [ %v142, %when138.end ]
  %loop35.more = icmp slt i64 %loop35.index, %panels
  br i1 %loop35.more, label %loop35.body, label %loop35.end
loop35.body:
  %v36 = add i64 %group, %loop35.index
  %v37 = mul i64 %v36, 4
  %v38 = getelementptr i8, ptr %arguments, i64 280
  %v39 = load i64, ptr %v38, align 1
  %v40 = sub i64 %v39, 4
  %v41 = call i64 @llvm.smin.i64(i64 %v37, i64 %v40)
  %v42 = mul i64 %v41, 4
  %v43 = getelementptr i8, ptr %v31, i64 %v42
  %v44 = mul i64 %v41, 4
  %v45 = getelementptr i8, ptr %v34, i64 %v44
  %v46 = load <4 x float>, ptr %loop35.chain, align 1
  %v47 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v46
  %v48 = getelementptr i8, ptr %loop35.chain, i64 16
  %v49 = load <4 x float>, ptr %v48, align 1
  %v50 = select i1 %begins, <4 x float> zeroinitializer, <4 x float> %v49
  %v51 = sub i64 %v24, %v11
  br label %loop52
loop52:
  %loop52.index = phi i64 [ 0, %loop35.body ], [ %v84, %loop52.body ]
  %loop52.x0 = phi ptr [ %v43, %loop35.body ], [ %v82, %loop52.body ]
  %loop52.y = phi ptr [ %v45, %loop35.body ], [ %v83, %loop52.body ]
  %loop52.sum0 = phi <4 x float> [ %v47, %loop35.body ], [ %v77, %loop52.body ]
  %loop52.sum1 = phi <4 x float> [ %v50, %loop35.body ], [ %v81, %loop52.body ]
  %loop52.more = icmp slt i64 %loop52.index, %v51
  br i1 %loop52.more, label %loop52.body, label %loop52.end
loop52.body:
  %v53 = add i64 %v11, %loop52.index
  %v54 = load <4 x float>, ptr %loop52.y, align 1
  %v55 = getelementptr i8, ptr %segments, i64 24
  %v56 = load i64, ptr %v55, align 1
  %v57 = getelementptr i8, ptr %segments, i64 32
  %v58 = load i64, ptr %v57, align 1
  %v59 = sub i64 %v53, %v56
  %v60 = sub i64 %v58, %v56
  %v61 = icmp ult i64 %v59, %v60
  %v62 = insertelement <4 x i1> poison, i1 %v61, i64 0
  %v63 = shufflevector <4 x i1> %v62, <4 x i1> poison, <4 x i32> zeroinitializer
  %v64 = getelementptr i8, ptr %segments, i64 48
  %v65 = load i64, ptr %v64, align 1
  %v66 = getelementptr i8, ptr %segments, i64 56
  %v67 = load i64, ptr %v66, align 1
  %v68 = sub i64 %v53, %v65
  %v69 = sub i64 %v67, %v65
  %v70 = icmp ult i64 %v68, %v69
  %v71 = insertelement <4 x i1> poison, i1 %v70, i64 0
  %v72 = shufflevector <4 x i1> %v71, <4 x i1> poison, <4 x i32> zeroinitializer
  %v73 = mul i64 %v6, 0
  %v74 = getelementptr i8, ptr %loop52.x0, i64 %v73
  %v75 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v74, i32 1, <4 x i1> %v63, <4 x float> zeroinitializer)
  %v76 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v75, <4 x float> %v54, <4 x float> %loop52.sum0)
  %v77 = select <4 x i1> %v63, <4 x float> %v76, <4 x float> %loop52.sum0
  %v78 = getelementptr i8, ptr %loop52.x0, i64 %v6
  %v79 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v78, i32 1, <4 x i1> %v72, <4 x float> zeroinitializer)
  %v80 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v79, <4 x float> %v54, <4 x float> %loop52.sum1)
  %v81 = select <4 x i1> %v72, <4 x float> %v80, <4 x float> %loop52.sum1
  %v82 = getelementptr i8, ptr %loop52.x0, i64 %v2
  %v83 = getelementptr i8, ptr %loop52.y, i64 %v4
  %v84 = add i64 %loop52.index, 1
  br label %loop52
loop52.end:
  %v85 = sub i64 %v26, %v24
  %v86 = call i64 @llvm.smin.i64(i64 %v85, i64 1)
  br label %loop87
loop87:
  %loop87.index = phi i64 [ 0, %loop52.end ], [ %v103, %loop91.end ]
  %loop87.x0 = phi ptr [ %loop52.x0, %loop52.end ], [ %loop91.x0, %loop91.end ]
  %loop87.y = phi ptr [ %loop52.y, %loop52.end ], [ %loop91.y, %loop91.end ]
  %loop87.sum0 = phi <4 x float> [ %loop52.sum0, %loop52.end ], [ %loop91.sum0, %loop91.end ]
  %loop87.sum1 = phi <4 x float> [ %loop52.sum1, %loop52.end ], [ %loop91.sum1, %loop91.end ]
  %loop87.more = icmp slt i64 %loop87.index, %v86
  br i1 %loop87.more, label %loop87.body, label %loop87.end
loop87.body:
  %v88 = mul i64 %v6, 0
  %v89 = getelementptr i8, ptr %loop87.x0, i64 %v88
  %v90 = load <4 x float>, ptr %v89, align 1
  br label %loop91
loop91:
  %loop91.index = phi i64 [ 0, %loop87.body ], [ %v102, %loop91.body ]
  %loop91.x0 = phi ptr [ %loop87.x0, %loop87.body ], [ %v100, %loop91.body ]
  %loop91.y = phi ptr [ %loop87.y, %loop87.body ], [ %v101, %loop91.body ]
  %loop91.sum0 = phi <4 x float> [ %loop87.sum0, %loop87.body ], [ %v98, %loop91.body ]
  %loop91.sum1 = phi <4 x float> [ %loop87.sum1, %loop87.body ], [ %v99, %loop91.body ]
  %loop91.held0_0 = phi <4 x float> [ %v90, %loop87.body ], [ %v97, %loop91.body ]
  %loop91.more = icmp slt i64 %loop91.index, %v85
  br i1 %loop91.more, label %loop91.body, label %loop91.end
loop91.body:
  %v92 = load <4 x float>, ptr %loop91.y, align 1
  %v93 = getelementptr i8, ptr %loop91.y, i64 %v10
  call void @llvm.prefetch.p0(ptr %v93, i32 0, i32 2, i32 1)
  %v94 = getelementptr i8, ptr %loop91.x0, i64 %v8
  call void @llvm.prefetch.p0(ptr %v94, i32 0, i32 2, i32 1)
  %v95 = call i64 asm "", "=r,0"(i64 %v6)
  %v96 = getelementptr i8, ptr %loop91.x0, i64 %v95
  %v97 = load <4 x float>, ptr %v96, align 1
  %v98 = call <4 x float> @llvm.fma.v4f32(<4 x float> %loop91.held0_0, <4 x float> %v92, <4 x float> %loop91.sum0)
  %v99 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v97, <4 x float> %v92, <4 x float> %loop91.sum1)
  %v100 = getelementptr i8, ptr %loop91.x0, i64 %v2
  %v101 = getelementptr i8, ptr %loop91.y, i64 %v4
  %v102 = add i64 %loop91.index, 1
  br label %loop91
loop91.end:
  %v103 = add i64 %loop87.index, 1
  br label %loop87
loop87.end:
  %v104 = sub i64 %v13, %v26
  br label %loop105
loop105:
  %loop105.index = phi i64 [ 0, %loop87.end ], [ %v137, %loop105.body ]
  %loop105.x0 = phi ptr [ %loop87.x0, %loop87.end ], [ %v135, %loop105.body ]
  %loop105.y = phi ptr [ %loop87.y, %loop87.end ], [ %v136, %loop105.body ]
  %loop105.sum0 = phi <4 x float> [ %loop87.sum0, %loop87.end ], [ %v130, %loop105.body ]
  %loop105.sum1 = phi <4 x float> [ %loop87.sum1, %loop87.end ], [ %v134, %loop105.body ]
  %loop105.more = icmp slt i64 %loop105.index, %v104
  br i1 %loop105.more, label %loop105.body, label %loop105.end
loop105.body:
  %v106 = add i64 %v26, %loop105.index
  %v107 = load <4 x float>, ptr %loop105.y, align 1
  %v108 = getelementptr i8, ptr %segments, i64 24
  %v109 = load i64, ptr %v108, align 1
  %v110 = getelementptr i8, ptr %segments, i64 32
  %v111 = load i64, ptr %v110, align 1
  %v112 = sub i64 %v106, %v109
  %v113 = sub i64 %v111, %v109
  %v114 = icmp ult i64 %v112, %v113
  %v115 = insertelement <4 x i1> poison, i1 %v114, i64 0
  %v116 = shufflevector <4 x i1> %v115, <4 x i1> poison, <4 x i32> zeroinitializer
  %v117 = getelementptr i8, ptr %segments, i64 48
  %v118 = load i64, ptr %v117, align 1
  %v119 = getelementptr i8, ptr %segments, i64 56
  %v120 = load i64, ptr %v119, align 1
  %v121 = sub i64 %v106, %v118
  %v122 = sub i64 %v120, %v118
  %v123 = icmp ult i64 %v121, %v122
  %v124 = insertelement <4 x i1> poison, i1 %v123, i64 0
  %v125 = shufflevector <4 x i1> %v124, <4 x i1> poison, <4 x i32> zeroinitializer
  %v126 = mul i64 %v6, 0
  %v127 = getelementptr i8, ptr %loop105.x0, i64 %v126
  %v128 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v127, i32 1, <4 x i1> %v116, <4 x float> zeroinitializer)
  %v129 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v128, <4 x float> %v107, <4 x float> %loop105.sum0)
  %v130 = select <4 x i1> %v116, <4 x float> %v129, <4 x float> %loop105.sum0
  %v131 = getelementptr i8, ptr %loop105.x0, i64 %v6
  %v132 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr %v131, i32 1, <4 x i1> %v125, <4 x float> zeroinitializer)
  %v133 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v132, <4 x float> %v107, <4 x float> %loop105.sum1)
  %v134 = select <4 x i1> %v125, <4 x float> %v133, <4 x float> %loop105.sum1
  %v135 = getelementptr i8, ptr %loop105.x0, i64 %v2
  %v136 = getelementptr i8, ptr %loop105.y, i64 %v4
  %v137 = add i64 %loop105.index, 1
  br label %loop105
loop105.end:
  br i1 %v28, label %when138, label %when138.else
when138:
  store <4 x float> %loop105.sum0, ptr %loop35.chain, align 1
  %v139 = getelementptr i8, ptr %loop35.chain, i64 16
  store <4 x float> %loop105.sum1, ptr %v139, align 1
  br label %when138.end
when138.else:
  br i1 %begins, label %when140, label %when140.end
when140:
  store <4 x float> zeroinitializer, ptr %loop35.chain, align 1
  %v141 = getelementptr i8, ptr %loop35.chain, i64 16
  store <4 x float> zeroinitializer, ptr %v141, align 1
  br label %when140.end
when140.end:
  br label %when138.end
when138.end:
  %v142 = getelementptr i8, ptr %loop35.chain, i64 %chain_step
  %v143 = add i64 %loop35.index, 1
  br label %loop35
loop35.end:
  ret void
}

declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.smin.i64(i64, i64)
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, i32, <4 x i1>, <4 x float>)
declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)

attributes #0 = { nounwind }

