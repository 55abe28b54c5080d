// Allocates from malloc by JavaScript code, until its standard input ends.
'use strict';
const kept = [];

function innermost(number) {
    kept[number & 63] = Buffer.allocUnsafeSlow(5000);
}

function outer(number) {
    innermost(number);
}

let number = 0;
const timer = setInterval(() => {
    for (let turn = 0; turn < 50; turn++) outer(number++);
}, 5);
process.stdin.on('end', () => clearInterval(timer)).resume();
console.log('waiting');
