// A web server whose pages are made anew for each request, always the same: `injected.js SOCKET`. SIGTERM ends it when all are answered.
'use strict';
const http = require('http');
const zlib = require('zlib');

function page(number) {
    const rows = {};
    for (let i = 0; i < 600; i++) rows['key' + i] = [number, i, String(i * number + 7919).repeat(3), { nested: Array(i % 7).fill(i) }];
    const buffer = Buffer.from(JSON.stringify(rows));
    return Buffer.concat([buffer, Buffer.alloc(20000, buffer.toString('base64'))]);
}

const server = http.createServer((request, response) => {
    // Packed by a thread of the pool, whose memory is malloc's.
    zlib.gzip(page(parseInt(request.url.slice(1), 10) + 1), (error, body) => {
        response.writeHead(error ? 500 : 200, { 'Content-Type': 'text/plain' });
        response.end(body);
    });
});
process.on('SIGTERM', () => server.close());
server.listen(process.argv[2]);
