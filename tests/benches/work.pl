# Hashes, sorting and regular expressions: a round for every line, answered by one.
use strict;
use warnings;

$| = 1;
while (my $line = <STDIN>) {
    my %words;
    for my $i (1 .. 4000) {
        my $text = "item " . ($i * 7919 % 1009) . ", part " . ($i % 31);
        while ($text =~ /(\w+)/g) { push @{ $words{$1} }, $i; }
    }
    my @order = sort { @{ $words{$b} } <=> @{ $words{$a} } || $a cmp $b } keys %words;
    my $joined = join ',', map { "$_=" . scalar @{ $words{$_} } } @order;
    print length($joined), "\n";
}
