/* Threads that do the same work again and again and compare what comes of it, while something is put into the process and taken out again.
 *
 * Deflater, Inflater and direct buffers take their memory from malloc. At each line it says how often, {"blocks":N,"wrong":N}; at `exit` it ends
 * with 0 if every result was the first one.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

public class Injected {
    static final AtomicLong blocks = new AtomicLong(), wrong = new AtomicLong();
    static volatile boolean ends;

    static long work(int seed) throws Exception {
        Map<String, List<Integer>> rows = new HashMap<>();
        for (int i = 0; i < 500; i++) rows.computeIfAbsent("key" + i * seed % 97, key -> new ArrayList<>()).add(i * seed);
        byte[] text = rows.toString().repeat(4).getBytes("UTF-8");
        ByteBuffer input = ByteBuffer.allocateDirect(text.length), packed = ByteBuffer.allocateDirect(text.length + 64);
        input.put(text).flip();
        Deflater deflater = new Deflater(seed % 9 + 1);
        deflater.setInput(input);
        deflater.finish();
        deflater.deflate(packed);
        deflater.end();
        packed.flip();
        CRC32 sum = new CRC32();
        sum.update(packed.duplicate());
        Inflater inflater = new Inflater();
        inflater.setInput(packed);
        byte[] again = new byte[text.length];
        int bytes = inflater.inflate(again);
        inflater.end();
        sum.update(again, 0, bytes);
        return java.util.Arrays.equals(text, again) ? sum.getValue() : -1;
    }

    static void loop(int seed, long first) {
        while (!ends) {
            try {
                if (work(seed) != first) wrong.incrementAndGet();
            } catch (Exception error) {
                wrong.incrementAndGet();
            }
            blocks.incrementAndGet();
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int seed : new int[] {3, 5, 7, 11}) {
            long first = work(seed);
            if (first == -1) System.exit(2);
            Thread thread = new Thread(() -> loop(seed, first));
            thread.start();
            threads.add(thread);
        }
        System.out.println("waiting");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.equals("exit"); line = in.readLine())
            System.out.println("{\"blocks\":" + blocks + ",\"wrong\":" + wrong + "}");
        ends = true;
        for (Thread thread : threads) thread.join();
        System.exit(wrong.get() == 0 ? 0 : 3);
    }
}
