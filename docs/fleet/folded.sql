-- Stacks, root first, and the bytes that they have allocated: the input of flame graph programs.
with
  best as (select frame_id, max(quality) as quality from symbols group by frame_id),
  names as (
    select y.frame_id as frame_id, y.inlined as inlined, max(y.function) as function
    from symbols y join best b on y.frame_id = b.frame_id and y.quality = b.quality
    group by y.frame_id, y.inlined
  ),
  k as (select distinct stack_id, depth, frame_id from stacks),
  a as (select stack_id, sum(bytes) as bytes from alloc group by stack_id)
select a.stack_id as stack_id, k.depth as depth, n.inlined as inlined, n.function as function, a.bytes as bytes
from a join k on a.stack_id = k.stack_id join names n on k.frame_id = n.frame_id
order by stack_id, depth desc, inlined desc;
