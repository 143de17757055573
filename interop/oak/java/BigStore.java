package oakcheck;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;

import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.plugins.memory.ArrayBasedBlob;
import org.apache.jackrabbit.oak.segment.SegmentNodeStore;
import org.apache.jackrabbit.oak.segment.SegmentNodeStoreBuilders;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.segment.file.FileStoreBuilder;
import org.apache.jackrabbit.oak.spi.commit.CommitInfo;
import org.apache.jackrabbit.oak.spi.commit.EmptyHook;
import org.apache.jackrabbit.oak.spi.state.NodeBuilder;

/**
 * The store for measurements: /content/sI/pJ/nK below the root, a hundred pJ in each
 * section and a hundred nK in each of those, about 2 kB each, every fiftieth with a
 * binary of 20 kB. The content is the same every time.
 */
final class BigStore {
    private BigStore() {}

    static Map<String, Object> make(File dir, int sections) throws Exception {
        if (!dir.mkdirs() && dir.list().length > 0) {
            throw new IllegalArgumentException(dir + ": expected a new folder");
        }
        Random rnd = new Random(7);
        try (FileStore s = FileStoreBuilder.fileStoreBuilder(dir).withMaxFileSize(256).build()) {
            SegmentNodeStore ns = SegmentNodeStoreBuilders.builder(s).build();
            for (int i = 0; i < sections; i++) {
                for (int j = 0; j < 100; j++) {
                    NodeBuilder root = ns.getRoot().builder();
                    NodeBuilder page = root.child("content").child("s" + i).child("p" + j);
                    page.setProperty("jcr:primaryType", "sling:Folder", Type.NAME);
                    for (int k = 0; k < 100; k++) {
                        leaf(page.child("n" + k), i, j, k, rnd);
                    }
                    ns.merge(root, EmptyHook.INSTANCE, CommitInfo.EMPTY);
                }
                s.flush();
                if (i == sections / 2) {
                    ns.checkpoint(RandomStore.TEN_YEARS);
                    s.flush();
                }
            }
        }
        new File(dir, "repo.lock").delete();
        return Main.answer("files", Store.files(dir));
    }

    private static void leaf(NodeBuilder n, int i, int j, int k, Random rnd) {
        n.setProperty("jcr:primaryType", "nt:unstructured", Type.NAME);
        n.setProperty("jcr:title", "Title " + i + "." + j + "." + k);
        n.setProperty("text", text(rnd, 1400 + rnd.nextInt(300)));
        n.setProperty("n", (long) (i * 10000 + j * 100 + k), Type.LONG);
        n.setProperty("jcr:created", "2024-01-" + String.format("%02d", 1 + rnd.nextInt(28)) + "T12:00:00.000Z", Type.DATE);
        n.setProperty("tags", Arrays.asList("t" + rnd.nextInt(50), "t" + rnd.nextInt(50), "t" + rnd.nextInt(50)), Type.STRINGS);
        if (k % 50 == 0) {
            n.setProperty("data", new ArrayBasedBlob(text(rnd, 20000).getBytes(StandardCharsets.UTF_8)), Type.BINARY);
        }
    }

    private static String text(Random rnd, int size) {
        char[] c = new char[size];
        for (int i = 0; i < size; i++) {
            c[i] = rnd.nextInt(6) == 0 ? ' ' : (char) ('a' + rnd.nextInt(26));
        }
        return new String(c);
    }
}
