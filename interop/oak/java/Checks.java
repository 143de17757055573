package oakcheck;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;

import org.apache.jackrabbit.oak.api.Type;
import org.apache.jackrabbit.oak.commons.PathUtils;
import org.apache.jackrabbit.oak.segment.SegmentNodeStore;
import org.apache.jackrabbit.oak.segment.SegmentNodeStoreBuilders;
import org.apache.jackrabbit.oak.segment.compaction.SegmentGCOptions;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.segment.file.ReadOnlyFileStore;
import org.apache.jackrabbit.oak.segment.tool.Check;
import org.apache.jackrabbit.oak.segment.tool.RecoverJournal;
import org.apache.jackrabbit.oak.spi.blob.BlobStore;
import org.apache.jackrabbit.oak.spi.commit.CommitInfo;
import org.apache.jackrabbit.oak.spi.commit.EmptyHook;
import org.apache.jackrabbit.oak.spi.state.EqualsDiff;
import org.apache.jackrabbit.oak.spi.state.NodeBuilder;
import org.apache.jackrabbit.oak.spi.state.NodeState;

/** The commands that look at stores, and let the reference work on them. */
final class Checks {
    private static final int MOST_FAULTS = 40;
    private static final int MOST_LINES = 60;
    /** The node that commits of ours change. */
    static final String MARK = "holdall:check";

    private Checks() {}

    static Map<String, Object> tar(Main m) {
        Map<String, Object> tars = new LinkedHashMap<>();
        List<String> faults = new ArrayList<>();
        for (int i = 1; i < m.count(); i++) {
            Map<String, Object> d = Tar.dump(m.file(i), m.segments);
            tars.put(m.word(i), d);
            for (String part : Arrays.asList("index", "graph", "brf")) {
                if (d.get(part) == null) {
                    faults.add(m.word(i) + ": " + part + ": not valid");
                }
            }
        }
        return tars(tars, faults);
    }

    static Map<String, Object> verify(Main m) throws IOException {
        Map<String, Object> tars = new LinkedHashMap<>();
        List<String> faults = new ArrayList<>();
        for (int i = 1; i < m.count(); i++) {
            Map<String, Object> v = Tar.verify(m.file(i));
            tars.put(m.word(i), v);
            for (Object f : (List<?>) v.remove("faults")) {
                faults.add(m.word(i) + ": " + f);
            }
        }
        return tars(tars, faults);
    }

    private static Map<String, Object> tars(Map<String, Object> tars, List<String> faults) {
        if (tars.isEmpty()) {
            throw new IllegalArgumentException("too few arguments");
        }
        Map<String, Object> a = Main.answer("tars", tars);
        a.put("faults", faults);
        return a;
    }

    static Map<String, Object> dump(Main m) throws Exception {
        return Store.dump(m.store(1), Store.blobs(m.datastore), m.segments, m.ids);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> compare(Main m, boolean exact) throws Exception {
        Map<String, Object> want = (Map<String, Object>) Json.parse(Store.read(m.file(2)));
        File d = m.store(1);
        Set<String> before = Store.files(d).keySet();
        BlobStore blobs = Store.blobs(m.datastore);
        Map<String, Object> got = (Map<String, Object>) Json.parse(Json.line(Store.dump(d, blobs, true, true)));
        Map<String, Object> wantHead = (Map<String, Object>) want.get("head"), gotHead = (Map<String, Object>) got.get("head");
        List<String> faults = new ArrayList<>();
        if (want.get("filesCreatedByReadOnlyOpen") == null) {
            recovered(before, d, faults);
        }
        if (gotHead.get("error") == null && !Json.line(wantHead).contains("\"error\"")) {
            try (ReadOnlyFileStore s = Store.builder(d, blobs).buildReadOnly()) {
                lookup(s.getHead(), faults);
            }
        }
        if (exact) {
            for (String k : Arrays.asList("journalNewestFirst", "manifest", "tars", "head")) {
                same(k, want.get(k), got.get(k), faults);
            }
        } else {
            same("head.error", wantHead.get("error"), gotHead.get("error"), faults);
            same("", byPath(wantHead), byPath(gotHead), faults);
        }
        if (faults.size() > MOST_FAULTS) {
            String rest = (faults.size() - MOST_FAULTS) + " more";
            faults.subList(MOST_FAULTS, faults.size()).clear();
            faults.add(rest);
        }
        Map<String, Object> a = Main.answer("faults", faults);
        a.put("nodes", gotHead.getOrDefault("nodeCount", 0));
        return a;
    }

    private static void lookup(NodeState n, List<String> faults) {
        String fault = Store.lookup("", n);
        if (fault != null) {
            faults.add("lookup: " + fault);
        }
    }

    /** The reference leaves a file beside a tar, or in its place, when it has had to recover it. */
    private static void recovered(Set<String> before, File d, List<String> faults) {
        for (String f : Store.files(d).keySet()) {
            if (f.endsWith(".bak") && !before.contains(f)) {
                faults.add("the reference recovered " + f);
            }
        }
    }

    private static Map<String, Object> byPath(Map<String, Object> head) {
        Object nodes = head.get("nodes");
        return nodes == null ? new TreeMap<>() : byPath((List<?>) nodes);
    }

    /** Properties by path, without record ids and in an order of their own. */
    static Map<String, Object> byPath(List<?> nodes) {
        Map<String, Object> out = new TreeMap<>();
        for (Object o : nodes) {
            Map<?, ?> n = (Map<?, ?>) o;
            Map<String, Object> props = new TreeMap<>();
            if (n.get("props") != null) {
                for (Object p : (List<?>) n.get("props")) {
                    props.put((String) ((List<?>) p).get(0), ((List<?>) p).subList(1, 3));
                }
            }
            if (n.get("error") != null) {
                props.put("\0error", n.get("error"));
            }
            out.put((String) n.get("path"), props);
        }
        return out;
    }

    static void same(String where, Object want, Object got, List<String> faults) {
        if (want instanceof Map && got instanceof Map) {
            Set<Object> keys = new LinkedHashSet<>(((Map<?, ?>) want).keySet());
            keys.addAll(((Map<?, ?>) got).keySet());
            for (Object k : keys) {
                same(where + "." + k, ((Map<?, ?>) want).get(k), ((Map<?, ?>) got).get(k), faults);
            }
        } else if (want instanceof List && got instanceof List && ((List<?>) want).size() == ((List<?>) got).size()) {
            for (int i = 0; i < ((List<?>) want).size(); i++) {
                same(where + "[" + i + "]", ((List<?>) want).get(i), ((List<?>) got).get(i), faults);
            }
        } else if (!Objects.equals(want, got)) {
            faults.add(where + ": expected " + cut(Json.line(want)) + ", found " + cut(Json.line(got)));
        }
    }

    private static String cut(String s) {
        return s.length() > 300 ? s.substring(0, 300) + "..." : s;
    }

    static Map<String, Object> equal(Main m) throws Exception {
        BlobStore blobs = Store.blobs(m.datastore);
        String path = m.count() > 3 ? m.word(3) : "/";
        List<String> faults = new ArrayList<>();
        try (ReadOnlyFileStore a = Store.builder(m.store(1), blobs).buildReadOnly(); ReadOnlyFileStore b = Store.builder(m.store(2), blobs).buildReadOnly()) {
            NodeState x = a.getHead(), y = b.getHead();
            for (String name : PathUtils.elements(path)) {
                x = x.getChildNode(name);
                y = y.getChildNode(name);
            }
            if (!x.exists() || !y.exists()) {
                faults.add(path + ": not in both");
            } else if (!EqualsDiff.equals(x, y)) {
                faults.add(path + ": not equal");
            }
        }
        return Main.answer("faults", faults);
    }

    private static List<Object> head(File d, BlobStore blobs) throws Exception {
        try (ReadOnlyFileStore s = Store.builder(d, blobs).buildReadOnly()) {
            return Store.nodes(s.getHead(), blobs != null, false);
        }
    }

    static void commitMark(FileStore s, String mark) throws Exception {
        SegmentNodeStore ns = SegmentNodeStoreBuilders.builder(s).build();
        NodeBuilder b = ns.getRoot().builder();
        b.child(MARK).setProperty("mark", mark).setProperty("list", Arrays.asList("a", "b", "c"), Type.STRINGS);
        ns.merge(b, EmptyHook.INSTANCE, CommitInfo.EMPTY);
        s.flush();
    }

    static Map<String, Object> commit(Main m) throws Exception {
        File d = m.store(1);
        BlobStore blobs = Store.blobs(m.datastore);
        Set<String> files = Store.files(d).keySet();
        List<Object> before = head(d, blobs);
        try (FileStore s = Store.builder(d, blobs).build()) {
            commitMark(s, "committed");
        }
        List<String> faults = new ArrayList<>();
        try (ReadOnlyFileStore s = Store.builder(d, blobs).buildReadOnly()) {
            String mark = s.getHead().getChildNode("root").getChildNode(MARK).getString("mark");
            if (!"committed".equals(mark)) {
                faults.add("the commit: found " + mark);
            }
            lookup(s.getHead(), faults);
        }
        return kept(d, blobs, files, before, faults);
    }

    static Map<String, Object> survive(Main m) throws Exception {
        File d = m.store(1);
        BlobStore blobs = Store.blobs(m.datastore);
        Set<String> files = Store.files(d).keySet();
        List<Object> before = head(d, blobs);
        List<String> faults = new ArrayList<>();
        for (int round = 0; round < 2; round++) {
            try (FileStore s = Store.builder(d, blobs).withGCOptions(SegmentGCOptions.defaultGCOptions().setOffline()).build()) {
                s.cleanup();
                commitMark(s, "round " + round);
                if (!s.compactFull()) {
                    faults.add("compaction: not done");
                }
                s.cleanup();
            }
        }
        return kept(d, blobs, files, before, faults);
    }

    /** As survive, but with the compactions of the tail and the cleanups of a running instance. */
    static Map<String, Object> surviveTail(Main m) throws Exception {
        File d = m.store(1);
        BlobStore blobs = Store.blobs(m.datastore);
        Set<String> files = Store.files(d).keySet();
        List<Object> before = head(d, blobs);
        List<String> faults = new ArrayList<>();
        SegmentGCOptions gc = SegmentGCOptions.defaultGCOptions().setEstimationDisabled(true);
        try (FileStore s = Store.builder(d, blobs).withGCOptions(gc).build()) {
            for (int round = 0; round < 4; round++) {
                commitMark(s, "round " + round);
                s.tailGC();
            }
        }
        return kept(d, blobs, files, before, faults);
    }

    private static Map<String, Object> kept(File d, BlobStore blobs, Set<String> files, List<Object> before, List<String> faults) throws Exception {
        Map<String, Object> was = byPath(before), is = byPath(head(d, blobs));
        was.remove("/root/" + MARK);
        is.remove("/root/" + MARK);
        was.forEach((path, props) -> broughtBack((Map<?, ?>) props, (Map<?, ?>) is.get(path)));
        same("", was, is, faults);
        recovered(files, d, faults);
        Map<String, Object> check = check(d, false, true);
        for (Object f : (List<?>) check.get("faults")) {
            faults.add("check: " + f);
        }
        Map<String, Object> a = Main.answer("faults", faults);
        a.put("nodes", is.size());
        a.put("files", Store.files(d));
        return a;
    }

    /**
     * The reference's compaction brings back a jcr:primaryType that is no name, once a commit has taken it away and a
     * checkpoint still has it.
     */
    private static void broughtBack(Map<?, ?> was, Map<?, ?> is) {
        String type = "jcr:primaryType";
        if (is != null && !was.containsKey(type) && is.get(type) != null && "String".equals(((List<?>) is.get(type)).get(0))) {
            is.remove(type);
        }
    }

    /** The reference's check of the newest revision that it finds good. */
    static Map<String, Object> check(File d, boolean mapped, boolean checkpoints) {
        StringWriter said = new StringWriter();
        PrintWriter w = new PrintWriter(said, true);
        int code = Check.builder().withPath(d).withMmap(mapped).withCheckBinaries(true).withCheckHead(true)
                .withCheckpoints(checkpoints ? new LinkedHashSet<>(Collections.singleton("all")) : Collections.emptySet())
                .withFilterPaths(new LinkedHashSet<>(Collections.singleton("/")))
                .withDebugInterval(Long.MAX_VALUE).withOutWriter(w).withErrWriter(w).build().run();
        w.flush();
        List<Object> lines = new ArrayList<>();
        for (String l : said.toString().split("\n")) {
            l = l.replaceAll(" from (\\w+ \\d+, |unknown).*$", "");
            if (l.isEmpty() || l.startsWith("\tat ") || l.startsWith("\t... ") || lines.size() == MOST_LINES) {
                continue;
            }
            l = l.replace(d.getAbsolutePath(), "STORE").replace(d.getPath(), "STORE");
            lines.add(cut(l));
        }
        String head = after("Latest good revision for path / is ", lines), all = after("Latest good revision for paths and checkpoints checked is ", lines);
        List<Object> journal = Store.journal(d);
        Object newest = journal.isEmpty() ? null : ((List<?>) journal.get(0)).get(0);
        List<String> faults = new ArrayList<>();
        if (code != 0) {
            faults.add("exit code " + code);
        }
        if (newest == null || !newest.equals(all)) {
            faults.add("the newest revision is " + newest + ", the newest good one " + all);
        }
        Map<String, Object> a = Main.answer("rc", code);
        a.put("lastGoodHead", head);
        a.put("lastGoodOverall", all);
        a.put("out", lines);
        a.put("faults", faults);
        return a;
    }

    private static String after(String start, List<Object> lines) {
        for (Object l : lines) {
            if (((String) l).startsWith(start)) {
                return ((String) l).substring(start.length());
            }
        }
        return null;
    }

    static Map<String, Object> recover(Main m) throws Exception {
        File d = m.store(1);
        BlobStore blobs = Store.blobs(m.datastore);
        Store.builder(d, blobs).build().close();
        return Store.dump(d, blobs, m.segments, m.ids);
    }

    static Map<String, Object> recoverJournal(Main m) throws Exception {
        return recoverJournal(m.store(1));
    }

    static Map<String, Object> recoverJournal(File d) throws Exception {
        PrintStream nowhere = new PrintStream(OutputStream.nullOutputStream());
        int code = RecoverJournal.builder().withPath(d).withOut(nowhere).withErr(nowhere).build().run();
        Map<String, Object> a = Main.answer("rc", code);
        a.put("journalNewestFirst", Store.journal(d));
        a.put("faults", code == 0 ? new ArrayList<>() : Collections.singletonList("exit code " + code));
        return a;
    }

    static Map<String, Object> sweep(Main m, boolean compact) throws Exception {
        File d = m.store(1);
        BlobStore blobs = Store.blobs(m.datastore);
        boolean done = sweep(d, blobs, m, compact);
        Map<String, Object> a = Store.dump(d, blobs, m.segments, m.ids);
        a.put("faults", done ? new ArrayList<>() : Collections.singletonList("compaction: not done"));
        return a;
    }

    private static boolean sweep(File d, BlobStore blobs, Main m, boolean compact) throws Exception {
        SegmentGCOptions o = SegmentGCOptions.defaultGCOptions();
        switch (m.count() > 2 ? m.word(2) : "1") {
            case "1":
                o.setOffline();
                break;
            case "2":
                break;
            default:
                throw new IllegalArgumentException("the reference retains 1 or 2 generations");
        }
        boolean done = true;
        try (FileStore s = Store.builder(d, blobs).withGCOptions(o).build()) {
            if (compact) {
                done = s.compactFull();
            }
            s.cleanup();
        }
        return done;
    }
}
