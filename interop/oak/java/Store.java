package oakcheck;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.zip.GZIPInputStream;

import javax.jcr.PropertyType;

import org.apache.jackrabbit.core.data.FileDataStore;
import org.apache.jackrabbit.oak.api.Blob;
import org.apache.jackrabbit.oak.api.PropertyState;
import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.plugins.blob.datastore.DataStoreBlobStore;
import org.apache.jackrabbit.oak.segment.RecordId;
import org.apache.jackrabbit.oak.segment.SegmentBlob;
import org.apache.jackrabbit.oak.segment.SegmentNodeState;
import org.apache.jackrabbit.oak.segment.file.FileStoreBuilder;
import org.apache.jackrabbit.oak.segment.file.JournalEntry;
import org.apache.jackrabbit.oak.segment.file.JournalReader;
import org.apache.jackrabbit.oak.segment.file.ReadOnlyFileStore;
import org.apache.jackrabbit.oak.segment.file.tar.LocalJournalFile;
import org.apache.jackrabbit.oak.spi.blob.BlobStore;
import org.apache.jackrabbit.oak.spi.state.ChildNodeEntry;
import org.apache.jackrabbit.oak.spi.state.NodeState;

/** A segment store's folder, and all that the reference says of it. */
final class Store {
    /** Longer strings are told by their length in UTF-8 and their digest. */
    private static final int LONGEST_TEXT = 256;

    private Store() {}

    static FileStoreBuilder builder(File dir, BlobStore blobs) {
        // By default the cache of nodes alone has room for a million.
        FileStoreBuilder b = FileStoreBuilder.fileStoreBuilder(dir).withMemoryMapping(false).withSegmentCacheSize(64).withMaxFileSize(256)
                .withNodeDeduplicationCacheSize(1 << 14);
        return blobs == null ? b : b.withBlobStore(blobs);
    }

    static BlobStore blobs(File dir) throws Exception {
        if (dir == null) {
            return null;
        }
        FileDataStore files = new FileDataStore();
        files.setMinRecordLength(4096);
        files.setPath(dir.getAbsolutePath());
        files.init(null);
        return new DataStoreBlobStore(files);
    }

    /**
     * The folder, and the newest revision's tree as a read-only store has it. Such
     * a store recovers tars without an index into files beside them.
     */
    static Map<String, Object> dump(File dir, BlobStore blobs, boolean segments, boolean ids) throws Exception {
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("files", files(dir));
        out.put("journalNewestFirst", journal(dir));
        out.put("manifest", manifest(new File(dir, "manifest")));
        File gc = new File(dir, "gc.log");
        if (gc.exists()) {
            out.put("gclog", Files.readAllLines(gc.toPath()));
        }
        Map<String, Object> tars = new TreeMap<>();
        for (File f : dir.listFiles()) {
            if (f.getName().endsWith(".tar")) {
                tars.put(f.getName(), Tar.dump(f, segments));
            }
        }
        out.put("tars", tars);
        out.put("head", head(dir, blobs, ids));
        return out;
    }

    static Map<String, Object> files(File dir) {
        Map<String, Object> m = new TreeMap<>();
        for (File f : dir.listFiles()) {
            if (f.isFile()) {
                m.put(f.getName(), f.length());
            }
        }
        return m;
    }

    static List<Object> journal(File dir) {
        List<Object> l = new ArrayList<>();
        File f = new File(dir, "journal.log");
        if (!f.exists()) {
            return l;
        }
        try (JournalReader r = new JournalReader(new LocalJournalFile(f))) {
            while (r.hasNext()) {
                JournalEntry e = r.next();
                l.add(Arrays.asList(e.getRevision(), e.getTimestamp()));
            }
        } catch (IOException e) {
            l.add(e.toString());
        }
        return l;
    }

    private static Object manifest(File f) throws IOException {
        if (!f.exists()) {
            return null;
        }
        Properties p = new Properties();
        try (Reader r = Files.newBufferedReader(f.toPath(), StandardCharsets.ISO_8859_1)) {
            p.load(r);
        }
        return new TreeMap<Object, Object>(p);
    }

    private static Map<String, Object> head(File dir, BlobStore blobs, boolean ids) {
        Map<String, Object> h = new LinkedHashMap<>();
        try (ReadOnlyFileStore s = builder(dir, blobs).buildReadOnly()) {
            RecordId id = s.getRevisions().getHead();
            h.put("revision", id.toString10());
            List<Object> nodes = nodes(s.getHead(), blobs != null, ids);
            h.put("nodeCount", nodes.size());
            h.put("nodes", nodes);
        } catch (Exception | StackOverflowError e) {
            h.put("error", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
        return h;
    }

    /** A tree, depth first, in the reference's order. What cannot be read has an error in its place. */
    static List<Object> nodes(NodeState root, boolean haveBlobs, boolean ids) {
        List<Object> out = new ArrayList<>();
        nodes("/", root, out, haveBlobs, ids);
        return out;
    }

    private static void nodes(String path, NodeState n, List<Object> out, boolean haveBlobs, boolean ids) {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("path", path);
        out.add(m);
        try {
            if (ids && n instanceof SegmentNodeState) {
                SegmentNodeState s = (SegmentNodeState) n;
                String record = s.getRecordId().toString10();
                m.put("rid", record);
                if (!s.getStableId().equals(record)) {
                    m.put("sid", s.getStableId());
                }
            }
            List<Object> props = new ArrayList<>();
            for (PropertyState p : n.getProperties()) {
                props.add(property(p, haveBlobs));
            }
            m.put("props", props);
            for (ChildNodeEntry c : n.getChildNodeEntries()) {
                nodes(path.equals("/") ? "/" + c.getName() : path + "/" + c.getName(), c.getNodeState(), out, haveBlobs, ids);
            }
        } catch (Exception | StackOverflowError e) {
            m.put("error", e.getClass().getSimpleName());
        }
    }

    private static Object property(PropertyState p, boolean haveBlobs) throws IOException {
        List<Object> values = new ArrayList<>();
        Type<?> t = p.getType();
        for (int i = 0; i < p.count(); i++) {
            values.add(t.tag() == PropertyType.BINARY ? blob(p.getValue(Type.BINARY, i), haveBlobs) : text(p.getValue(Type.STRING, i)));
        }
        return Arrays.asList(p.getName(), PropertyType.nameFromValue(t.tag()) + (t.isArray() ? "[]" : ""), values);
    }

    static Object text(String s) {
        byte[] b = s.getBytes(StandardCharsets.UTF_8);
        if (b.length <= LONGEST_TEXT) {
            return s;
        }
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("utf8", b.length);
        m.put("sha256", sha256(b));
        return m;
    }

    private static Object blob(Blob b, boolean haveBlobs) throws IOException {
        Map<String, Object> m = new LinkedHashMap<>();
        if (b instanceof SegmentBlob && ((SegmentBlob) b).isExternal()) {
            m.put("blobId", text(((SegmentBlob) b).getBlobId()));
            if (!haveBlobs) {
                return m;
            }
        }
        MessageDigest d = digest();
        long size = 0;
        try (InputStream in = b.getNewStream()) {
            byte[] buf = new byte[8192];
            for (int n; (n = in.read(buf)) > 0; size += n) {
                d.update(buf, 0, n);
            }
        }
        m.put("len", size);
        m.put("sha256", hex(d.digest()));
        return m;
    }

    /** Says where what is found by name is not what is found by going through all, or returns null. */
    static String lookup(String path, NodeState n) {
        for (PropertyState p : n.getProperties()) {
            if (!p.equals(n.getProperty(p.getName()))) {
                return path + "/" + p.getName() + ": another property by its name";
            }
        }
        long count = 0;
        for (ChildNodeEntry c : n.getChildNodeEntries()) {
            count++;
            String at = path + "/" + c.getName();
            NodeState x = n.getChildNode(c.getName());
            if (!x.exists() || !n.hasChildNode(c.getName())) {
                return at + ": no node by its name";
            }
            if (x instanceof SegmentNodeState && !((SegmentNodeState) x).getRecordId().equals(((SegmentNodeState) c.getNodeState()).getRecordId())) {
                return at + ": another node by its name";
            }
            String fault = lookup(at, x);
            if (fault != null) {
                return fault;
            }
        }
        if (count != n.getChildNodeCount(Long.MAX_VALUE)) {
            return path + ": counts " + n.getChildNodeCount(Long.MAX_VALUE) + " children, found " + count;
        }
        return null;
    }

    private static MessageDigest digest() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    static String sha256(byte[] b) {
        return hex(digest().digest(b));
    }

    private static String hex(byte[] b) {
        StringBuilder out = new StringBuilder();
        for (byte x : b) {
            out.append(Character.forDigit(x >> 4 & 15, 16)).append(Character.forDigit(x & 15, 16));
        }
        return out.toString();
    }

    static void copy(Path from, Path to) throws IOException {
        Files.walkFileTree(from, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult preVisitDirectory(Path dir, BasicFileAttributes a) throws IOException {
                Files.createDirectories(to.resolve(from.relativize(dir)));
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes a) throws IOException {
                Files.copy(file, to.resolve(from.relativize(file)), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.COPY_ATTRIBUTES);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    static void delete(Path dir) throws IOException {
        Files.walkFileTree(dir, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes a) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path d, IOException e) throws IOException {
                Files.delete(d);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    static String read(File f) throws IOException {
        try (InputStream raw = new FileInputStream(f); InputStream in = f.getName().endsWith(".gz") ? new GZIPInputStream(raw) : raw) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
