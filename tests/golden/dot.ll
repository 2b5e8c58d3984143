define void @dot(ptr %x, ptr %y, i64 %n, ptr %to) #0 {
entry:
  br label %loop1
loop1:
  %loop1.index = phi i64 [ 0, %entry ], [ %v6, %loop1.body ]
  %loop1.x = phi ptr [ %x, %entry ], [ %v2, %loop1.body ]
  %loop1.sum = phi <4 x float> [ zeroinitializer, %entry ], [ %v5, %loop1.body ]
  %loop1.more = icmp slt i64 %loop1.index, %n
  br i1 %loop1.more, label %loop1.body, label %loop1.end
loop1.body:
  %v2 = getelementptr i8, ptr %loop1.x, i64 16
  %v3 = load <4 x float>, ptr %loop1.x, align 1
  %v4 = load <4 x float>, ptr %y, align 1
  %v5 = call <4 x float> @llvm.fma.v4f32(<4 x float> %v3, <4 x float> %v4, <4 x float> %loop1.sum)
  %v6 = add i64 %loop1.index, 1
  br label %loop1
loop1.end:
  %v7 = icmp slt i64 %n, 1
  br i1 %v7, label %when8, label %when8.else
when8:
  store <4 x float> zeroinitializer, ptr %to, align 1
  br label %when8.end
when8.else:
  store <4 x float> %loop1.sum, ptr %to, align 1
  br label %when8.end
when8.end:
  ret void
}

declare <4 x float> @llvm.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)

attributes #0 = { nounwind }

