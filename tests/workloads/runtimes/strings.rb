# Allocates from malloc by Ruby code, until its standard input ends.
$kept = []

def innermost(number)
  $kept[number & 63] = 'x' * 5000
end

def outer(turns)
  turns.times { |number| innermost(number) }
end

puts 'waiting'
$stdout.flush
outer(50) until IO.select([$stdin], nil, nil, 0.005)
