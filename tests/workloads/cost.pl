# Real programs' work, in the protocol of `cost.c`: a line `CASE COUNT` is answered by nanoseconds of CPU time.
use strict;
use warnings;
use Time::HiRes qw(clock);
$| = 1;
print "waiting\n";
while (my $line = <STDIN>) {
    my ($case, $count) = split ' ', $line;
    my $begin = clock();
    for my $round (1 .. $count) {
        my %words;
        push @{$words{$_ % 97}}, "word $_" for 1 .. 2000;
        my @sorted = sort { $words{$a}[0] cmp $words{$b}[0] } keys %words;
        my $text = join ',', map { s/w(or)d/$1/r } map { @{$words{$_}} } @sorted;
    }
    printf "%.0f\n", (clock() - $begin) * 1e9;
}
