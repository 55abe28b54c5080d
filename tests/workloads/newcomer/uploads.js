// A service with a leak: an upload stays in a map, because its name is never the same.
'use strict';
const zlib = require('zlib');
const previews = new Map();

function unpack(number) {
    return Buffer.alloc(30000, 'upload ' + number);
}

function keepPreview(number) {
    previews.set('upload-' + number, unpack(number));
}

// Work that gives its memory back.
function pack(number) {
    return zlib.gzipSync(Buffer.alloc(20000, String(number))).length;
}

let number = 0;
setInterval(() => {
    for (let turn = 0; turn < 5; turn++) {
        pack(number);
        keepPreview(number++);
    }
}, 50);
console.log('waiting');
