package oakcheck;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

import javax.jcr.PropertyType;

import org.apache.jackrabbit.oak.api.Blob;
import org.apache.jackrabbit.oak.api.PropertyState;
import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.plugins.memory.ArrayBasedBlob;
import org.apache.jackrabbit.oak.segment.SegmentNodeStore;
import org.apache.jackrabbit.oak.segment.SegmentNodeStoreBuilders;
import org.apache.jackrabbit.oak.segment.compaction.SegmentGCOptions;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.spi.commit.CommitInfo;
import org.apache.jackrabbit.oak.spi.commit.EmptyHook;
import org.apache.jackrabbit.oak.spi.state.ChildNodeEntry;
import org.apache.jackrabbit.oak.spi.state.NodeBuilder;
import org.apache.jackrabbit.oak.spi.state.NodeState;

/**
 * A store that is being written, for others to read meanwhile. It does what the lines
 * that it reads say, until they end:
 *
 * <pre>
 * commit [N]       N commits, one by default, each flushed
 * gc full|tail     an online compaction and a cleanup
 * run MILLIS [GC]  commits that long after one another until the next line comes, with a
 *                  compaction beside them after every GC of them
 * </pre>
 *
 * For each commit it answers a line of JSON: its number, which the root has as a property
 * too, the revision that the journal has, and a digest of the tree. After each line that it
 * read comes {"done":true}.
 */
final class LiveStore {
    private static final String[] NAMES = {"a", "Aa", "BB", "jcr:content", "with space", "\u00e4", "\ud83d\ude00", "%41", "%5C", "a%2Fb", "back\\slash", "tab\t", "100%",
        "%prop", "%lost1", "a:b"};

    private static final String END = "end";

    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Random rnd;
    private final PrintStream answers;
    private final FileStore store;
    private final SegmentNodeStore nodes;
    private long commits;
    private Thread collection;
    private volatile Throwable failed;

    private LiveStore(File dir, long seed, PrintStream answers) throws Exception {
        rnd = new Random(seed);
        this.answers = answers;
        SegmentGCOptions gc = SegmentGCOptions.defaultGCOptions().setEstimationDisabled(true).setMemoryThreshold(0);
        store = Store.builder(dir, null).withMaxFileSize(1).withGCOptions(gc).build();
        nodes = SegmentNodeStoreBuilders.builder(store).build();
    }

    static void run(File dir, long seed, BufferedReader in, PrintStream answers) throws Exception {
        LiveStore s = new LiveStore(dir, seed, answers);
        Thread reader = new Thread(() -> {
            try {
                for (String line; (line = in.readLine()) != null;) {
                    s.lines.add(line);
                }
            } catch (IOException e) {
                s.failed = e;
            }
            s.lines.add(END);
        });
        reader.setDaemon(true);
        reader.start();
        try {
            s.commit();
            s.done();
            for (String line; !(line = s.lines.take()).equals(END);) {
                s.obey(line.split(" "));
                s.done();
            }
            s.join();
        } finally {
            s.store.close();
        }
    }

    private void done() {
        answers.println("{\"done\":true}");
        answers.flush();
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "commit":
                for (int n = words.length > 1 ? Integer.parseInt(words[1]) : 1; n > 0; n--) {
                    commit();
                }
                break;
            case "gc":
                collect(words[1].equals("full"));
                break;
            case "run":
                int every = words.length > 2 ? Integer.parseInt(words[2]) : 0;
                for (int n = 1; lines.isEmpty(); n++) {
                    commit();
                    if (every > 0 && n % every == 0) {
                        join();
                        boolean full = n / every % 3 == 0;
                        collection = new Thread(() -> collect(full));
                        collection.start();
                    }
                    Thread.sleep(Long.parseLong(words[1]));
                }
                join();
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void join() throws Exception {
        if (collection != null) {
            collection.join();
            collection = null;
        }
        if (failed != null) {
            throw new IllegalStateException(failed);
        }
    }

    private void collect(boolean full) {
        try {
            if (full) {
                store.fullGC();
            } else {
                store.tailGC();
            }
        } catch (Throwable e) {
            failed = e;
        }
    }

    private void commit() throws Exception {
        NodeBuilder root = nodes.getRoot().builder();
        root.setProperty("commit", ++commits, Type.LONG);
        for (int n = 1 + rnd.nextInt(4); n > 0; n--) {
            NodeBuilder at = root.child("live").child("s" + rnd.nextInt(12));
            if (rnd.nextInt(3) == 0) {
                at.remove();
            } else {
                grow(at, 2);
            }
        }
        nodes.merge(root, EmptyHook.INSTANCE, CommitInfo.EMPTY);
        store.flush();
        Map<String, Object> a = new LinkedHashMap<>();
        a.put("commit", commits);
        a.put("revision", store.getRevisions().getPersistedHead().toString10());
        a.put("sum", sum(nodes.getRoot()));
        answers.println(Json.line(a));
        answers.flush();
    }

    private void grow(NodeBuilder n, int depth) {
        for (int k = rnd.nextInt(4); k > 0; k--) {
            String name = name();
            switch (rnd.nextInt(5)) {
                case 0:
                    n.setProperty(name, rnd.nextLong(), Type.LONG);
                    break;
                case 1:
                    List<String> many = new ArrayList<>();
                    for (int i = rnd.nextInt(4); i > 0; i--) {
                        many.add(text(rnd.nextInt(20)));
                    }
                    n.setProperty(name, many, Type.STRINGS);
                    break;
                case 2:
                    byte[] b = new byte[new int[] {10, 5000, 20_000, 300_000}[rnd.nextInt(rnd.nextInt(6) == 0 ? 4 : 2)]];
                    rnd.nextBytes(b);
                    n.setProperty(name, new ArrayBasedBlob(b), Type.BINARY);
                    break;
                default:
                    n.setProperty(name, text(rnd.nextInt(200)), Type.STRING);
            }
        }
        for (int k = rnd.nextInt(4); k > 0 && depth > 0; k--) {
            grow(n.child(name()), depth - 1);
        }
        if (rnd.nextInt(30) == 0) { // so many that the children are a map of several levels
            for (int i = 0; i < 80; i++) {
                n.child("n" + i);
            }
        }
    }

    private String name() {
        return rnd.nextInt(2) == 0 ? NAMES[rnd.nextInt(NAMES.length)] : "n" + rnd.nextInt(20);
    }

    private String text(int size) {
        StringBuilder s = new StringBuilder(size);
        while (s.length() < size) {
            s.append(Integer.toString(rnd.nextInt(), 36)).append("\u00e4 ");
        }
        return s.toString();
    }

    /** A digest of a tree that depends on no order: of the sorted digests of its nodes. */
    private static String sum(NodeState root) throws Exception {
        List<String> all = new ArrayList<>();
        nodes(new ArrayList<>(), root, all);
        return sorted(all);
    }

    private static void nodes(List<String> path, NodeState n, List<String> all) throws Exception {
        List<String> props = new ArrayList<>();
        for (PropertyState p : n.getProperties()) {
            List<byte[]> parts = new ArrayList<>();
            parts.add(utf8(p.getName()));
            parts.add(utf8(PropertyType.nameFromValue(p.getType().tag())));
            parts.add(utf8(String.valueOf(p.isArray())));
            for (int i = 0; i < p.count(); i++) {
                parts.add(p.getType().tag() == PropertyType.BINARY ? bytes(p.getValue(Type.BINARY, i)) : utf8(p.getValue(Type.STRING, i)));
            }
            props.add(digest(parts));
        }
        List<byte[]> parts = new ArrayList<>();
        for (String name : path) {
            parts.add(utf8(name));
        }
        parts.add(utf8(sorted(props)));
        all.add(digest(parts));
        for (ChildNodeEntry c : n.getChildNodeEntries()) {
            path.add(c.getName());
            nodes(path, c.getNodeState(), all);
            path.remove(path.size() - 1);
        }
    }

    private static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] bytes(Blob b) throws Exception {
        try (InputStream in = b.getNewStream()) {
            return in.readAllBytes();
        }
    }

    private static String sorted(List<String> digests) throws Exception {
        Collections.sort(digests);
        return digest(Collections.singletonList(utf8(String.join("", digests))));
    }

    private static String digest(List<byte[]> parts) throws Exception {
        MessageDigest d = MessageDigest.getInstance("SHA-256");
        for (byte[] p : parts) {
            d.update(ByteBuffer.allocate(4).putInt(p.length).array());
            d.update(p);
        }
        StringBuilder hex = new StringBuilder();
        for (byte x : d.digest()) {
            hex.append(String.format("%02x", x));
        }
        return hex.toString();
    }
}
