/* Allocates from malloc by Java code, until its standard input ends. */
import java.nio.ByteBuffer;

public class Direct {
    static final ByteBuffer[] kept = new ByteBuffer[64];
    static volatile boolean ends;

    static void innermost(int number) {
        kept[number & 63] = ByteBuffer.allocateDirect(5000);
    }

    static void outer(int number) {
        innermost(number);
    }

    public static void main(String[] arguments) throws Exception {
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) { }
            ends = true;
        });
        reader.start();
        System.out.println("waiting");
        for (int number = 0; !ends; number++) {
            outer(number);
            if (number % 50 == 0) Thread.sleep(5);
        }
        System.exit(0);
    }
}
