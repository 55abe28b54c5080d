<?php
// Allocates by PHP code, until its standard input ends.
$kept = [];

function innermost(int $number): int {
    global $kept;
    $kept[$number & 63] = str_repeat(chr(65 + $number % 26), 5000);
    return $number;
}

function outer(int $turns): int {
    $sum = 0;
    for ($turn = 0; $turn < $turns; $turn++) $sum += innermost($turn);
    return $sum;
}

echo "waiting\n";
do {
    outer(50);
    $read = [STDIN];
    $none = [];
} while (stream_select($read, $none, $none, 0, 5000) === 0);
