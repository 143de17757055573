package oakcheck;

import java.io.File;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.function.Supplier;

import org.apache.jackrabbit.oak.api.Blob;
import org.apache.jackrabbit.oak.api.PropertyState;
import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.plugins.memory.ArrayBasedBlob;
import org.apache.jackrabbit.oak.plugins.memory.PropertyStates;
import org.apache.jackrabbit.oak.segment.SegmentNodeStore;
import org.apache.jackrabbit.oak.segment.SegmentNodeStoreBuilders;
import org.apache.jackrabbit.oak.segment.compaction.SegmentGCOptions;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.spi.blob.BlobStore;
import org.apache.jackrabbit.oak.spi.commit.CommitInfo;
import org.apache.jackrabbit.oak.spi.commit.EmptyHook;
import org.apache.jackrabbit.oak.spi.state.NodeBuilder;

/**
 * A small store by a seed. What is below /root, and what was done to get there, is
 * the same for one seed; ids of segments and names of checkpoints are not, for the
 * reference draws those itself.
 */
final class RandomStore {
    static final long TEN_YEARS = 1000L * 3600 * 24 * 3650;

    /** Sizes around which the format does something else. */
    private static final int[] EDGES = {0, 1, 127, 128, 129, 4095, 4096, 4097, 16511, 16512, 16513, 20480, 262143, 262144, 262145, 300_000};
    private static final String[] NAMES = {"Aa", "BB", "AaAa", "BBBB", "AaBB", "BBAa", "jcr:content", "rep:policy", ":hidden", "with space",
        "\u00e4\u00f6\u00fc", "\u65e5\u672c\u8a9e", "\ud83d\ude00", "%2F", "a.b", "\uffee"};
    private static final String[] TEXTS = {"segment ", "template ", "of a ", "journal\n", "\u00e4\u20ac", "\ud83d\ude00 ", "0123456789", "\0", "the same "};

    private final Random rnd;
    private final List<String> done = new ArrayList<>();
    private final BlobStore blobs;
    private final File dir;
    private FileStore store;
    private SegmentNodeStore nodes;

    private RandomStore(File dir, File datastore, Random rnd) throws Exception {
        this.rnd = rnd;
        this.dir = dir;
        blobs = Store.blobs(datastore);
        open();
    }

    static Map<String, Object> make(File into, long seed, boolean killed) throws Exception {
        if (!into.mkdirs() && into.list().length > 0) {
            throw new IllegalArgumentException(into + ": expected a new folder");
        }
        Random rnd = new Random(seed);
        Path at = into.toPath().resolve("segmentstore"), live = into.toPath().resolve("live");
        File datastore = rnd.nextBoolean() ? new File(into, "datastore") : null;
        RandomStore r = new RandomStore((killed ? live : at).toFile(), datastore, rnd);
        try {
            for (int n = 3 + rnd.nextInt(10); n > 0; n--) {
                r.step();
            }
            if (killed) {
                // A tar is made when there is something to write, and closed when it is full.
                do {
                    r.grow();
                } while (Tar.dump(lastTar(live), false).get("index") != null);
                Store.copy(live, at);
            }
        } finally {
            r.store.close();
        }
        if (killed) {
            Store.delete(live);
        }
        at.resolve("repo.lock").toFile().delete();
        Map<String, Object> a = new LinkedHashMap<>();
        a.put("seed", seed);
        a.put("store", at.toString());
        a.put("datastore", datastore == null ? null : datastore.toString());
        a.put("done", r.done);
        return a;
    }

    private static File lastTar(Path dir) {
        File[] tars = dir.toFile().listFiles((d, name) -> name.endsWith(".tar"));
        return Collections.max(Arrays.asList(tars));
    }

    private void open() throws Exception {
        SegmentGCOptions gc = SegmentGCOptions.defaultGCOptions().setEstimationDisabled(true).setMemoryThreshold(0);
        store = Store.builder(dir, blobs).withMaxFileSize(1).withGCOptions(gc).build();
        nodes = SegmentNodeStoreBuilders.builder(store).build();
    }

    private void step() throws Exception {
        switch (rnd.nextInt(14)) {
            case 0:
                done("checkpoint");
                nodes.checkpoint(TEN_YEARS, Collections.singletonMap("creator", text(20)));
                store.flush();
                break;
            case 1:
                done("full collection");
                store.fullGC();
                break;
            case 2:
                done("tail collection");
                store.tailGC();
                break;
            case 3:
                done("opened again");
                store.close();
                open();
                break;
            default:
                grow();
        }
    }

    private void done(String what) {
        done.add(what);
    }

    private void grow() throws Exception {
        done("commit");
        NodeBuilder root = nodes.getRoot().builder();
        // So that there is something to write, whatever becomes of the rest.
        root.setProperty("commit", (long) done.size(), Type.LONG);
        for (int n = 1 + rnd.nextInt(6); n > 0; n--) {
            change(root);
        }
        nodes.merge(root, EmptyHook.INSTANCE, CommitInfo.EMPTY);
        store.flush();
    }

    private void change(NodeBuilder root) throws Exception {
        NodeBuilder at = root;
        while (rnd.nextInt(3) > 0) {
            NodeBuilder child = anyChild(at);
            if (child == null) {
                break;
            }
            at = child;
        }
        switch (rnd.nextInt(12)) {
            case 0:
                if (at != root) {
                    at.remove();
                }
                break;
            case 1: // so many that the children are a map of several levels
                NodeBuilder wide = at.child(name());
                for (int n = 30 + rnd.nextInt(rnd.nextBoolean() ? 40 : 1000), i = 0; i < n; i++) {
                    wide.child("n" + i);
                }
                break;
            case 2: // takes some away, which may bring a map back to one leaf
                for (int n = 1 + rnd.nextInt(40); n > 0; n--) {
                    NodeBuilder child = anyChild(at);
                    if (child == null) {
                        break;
                    }
                    child.remove();
                }
                break;
            case 3: // properties enough for a second level of their list
                for (int n = rnd.nextInt(300), i = 0; i < n; i++) {
                    at.setProperty("p" + i, (long) rnd.nextInt(5), Type.LONG);
                }
                break;
            default:
                grow(at.child(name()), 3);
        }
    }

    private NodeBuilder anyChild(NodeBuilder of) {
        List<String> names = new ArrayList<>();
        of.getChildNodeNames().forEach(names::add);
        if (names.isEmpty()) {
            return null;
        }
        // The order in which the reference lists them may depend on record ids.
        Collections.sort(names);
        return of.getChildNode(names.get(rnd.nextInt(names.size())));
    }

    private void grow(NodeBuilder n, int depth) throws Exception {
        if (rnd.nextBoolean()) {
            n.setProperty("jcr:primaryType", rnd.nextInt(5) == 0 ? "nt:file" : "nt:unstructured", rnd.nextInt(9) == 0 ? Type.STRING : Type.NAME);
        }
        if (rnd.nextInt(4) == 0) {
            n.setProperty(PropertyStates.createProperty("jcr:mixinTypes", many(rnd.nextInt(4), () -> "mix:" + rnd.nextInt(4)), Type.NAMES));
        }
        for (int k = rnd.nextInt(6); k > 0; k--) {
            n.setProperty(property(name()));
        }
        for (int k = depth == 0 ? 0 : rnd.nextInt(5); k > 0; k--) {
            grow(n.child(name()), depth - 1);
        }
    }

    private PropertyState property(String name) throws Exception {
        boolean one = rnd.nextInt(3) > 0;
        int count = one ? 1 : rnd.nextInt(12) == 0 ? 250 + rnd.nextInt(300) : rnd.nextInt(5);
        switch (rnd.nextInt(13)) {
            case 0:
                return of(name, one, count, Type.LONG, Type.LONGS, rnd::nextLong);
            case 1:
                return of(name, one, count, Type.DOUBLE, Type.DOUBLES, () -> rnd.nextInt(4) == 0 ? Double.NaN : rnd.nextGaussian() * Math.pow(10, rnd.nextInt(600) - 300));
            case 2:
                return of(name, one, count, Type.BOOLEAN, Type.BOOLEANS, rnd::nextBoolean);
            case 3:
                return of(name, one, count, Type.DATE, Type.DATES, () -> String.format("20%02d-02-1%dT10:20:30.%03d+05:30", rnd.nextInt(100), rnd.nextInt(10), rnd.nextInt(1000)));
            case 4:
                return of(name, one, count, Type.NAME, Type.NAMES, this::name);
            case 5:
                return of(name, one, count, Type.PATH, Type.PATHS, () -> "/" + name() + "/" + name());
            case 6:
                return of(name, one, count, Type.REFERENCE, Type.REFERENCES, this::uuid);
            case 7:
                return of(name, one, count, Type.WEAKREFERENCE, Type.WEAKREFERENCES, this::uuid);
            case 8:
                return of(name, one, count, Type.URI, Type.URIS, () -> "urn:" + rnd.nextInt());
            case 9:
                return of(name, one, count, Type.DECIMAL, Type.DECIMALS, () -> new BigDecimal(new BigInteger(rnd.nextInt(200), rnd), rnd.nextInt(40) - 20));
            case 10:
                return of(name, one, Math.min(count, 4), Type.BINARY, Type.BINARIES, this::blob);
            default:
                return of(name, one, count, Type.STRING, Type.STRINGS, () -> text(size(count)));
        }
    }

    private static <T> PropertyState of(String name, boolean one, int count, Type<T> single, Type<Iterable<T>> multiple, Supplier<T> value) {
        if (one) {
            return PropertyStates.createProperty(name, value.get(), single);
        }
        return PropertyStates.createProperty(name, many(count, value), multiple);
    }

    private static <T> List<T> many(int n, Supplier<T> value) {
        List<T> l = new ArrayList<>();
        while (l.size() < n) {
            l.add(value.get());
        }
        return l;
    }

    private String name() {
        return rnd.nextInt(3) == 0 ? NAMES[rnd.nextInt(NAMES.length)] : "n" + rnd.nextInt(40);
    }

    private String uuid() {
        return new UUID(rnd.nextLong(), rnd.nextLong()).toString();
    }

    private int size(int count) {
        return count < 5 && rnd.nextInt(8) == 0 ? EDGES[rnd.nextInt(EDGES.length)] : rnd.nextInt(60);
    }

    private String text(int size) {
        StringBuilder s = new StringBuilder(size);
        while (s.length() < size) {
            s.append(rnd.nextInt(4) == 0 ? Integer.toString(rnd.nextInt(), 36) : TEXTS[rnd.nextInt(TEXTS.length)]);
        }
        s.setLength(size);
        if (size > 0 && Character.isHighSurrogate(s.charAt(size - 1))) {
            s.setCharAt(size - 1, '.');
        }
        return s.toString();
    }

    private Blob blob() {
        byte[] b = new byte[rnd.nextBoolean() ? EDGES[rnd.nextInt(EDGES.length)] : rnd.nextInt(6000)];
        rnd.nextBytes(b);
        return new ArrayBasedBlob(b);
    }
}
