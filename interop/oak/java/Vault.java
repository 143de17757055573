package oakcheck;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.StringReader;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Calendar;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TimeZone;

import javax.jcr.Node;
import javax.jcr.PropertyType;
import javax.jcr.Repository;
import javax.jcr.Session;
import javax.jcr.SimpleCredentials;
import javax.jcr.Value;
import javax.jcr.ValueFactory;

import org.apache.jackrabbit.api.JackrabbitRepository;
import org.apache.jackrabbit.commons.cnd.CndImporter;
import org.apache.jackrabbit.oak.Oak;
import org.apache.jackrabbit.oak.jcr.Jcr;
import org.apache.jackrabbit.oak.segment.SegmentNodeStoreBuilders;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.vault.fs.api.PathFilterSet;
import org.apache.jackrabbit.vault.fs.api.ProgressTrackerListener;
import org.apache.jackrabbit.vault.fs.config.DefaultMetaInf;
import org.apache.jackrabbit.vault.fs.config.DefaultWorkspaceFilter;
import org.apache.jackrabbit.vault.fs.io.AccessControlHandling;
import org.apache.jackrabbit.vault.fs.io.ImportOptions;
import org.apache.jackrabbit.vault.fs.io.Importer;
import org.apache.jackrabbit.vault.fs.io.ZipArchive;
import org.apache.jackrabbit.vault.packaging.ExportOptions;
import org.apache.jackrabbit.vault.packaging.PackageProperties;
import org.apache.jackrabbit.vault.packaging.impl.PackageManagerImpl;

/** Repositories with content of the JCR API, and packages of FileVault of and for them. */
final class Vault {
    private static final String TYPES = "<'sling'='http://sling.apache.org/jcr/sling/1.0'>\n<'my'='http://example.org/my?a=1&b=<2>'>\n"
            + "[sling:Folder] > nt:folder\n- * (undefined)\n- * (undefined) multiple\n+ * (nt:base) = sling:Folder version\n"
            + "[sling:OrderedFolder] > sling:Folder\norderable\n+ * (nt:base) = sling:OrderedFolder version\n"
            + "[my:Ordered] > nt:base\norderable\n- * (undefined)\n- * (undefined) multiple\n+ * (nt:base) = nt:unstructured version\n"
            + "[my:Loose] > nt:base\n- * (undefined)\n- * (undefined) multiple\n+ * (nt:base) = nt:unstructured version\n"
            + "[my:Mark]\nmixin\n- my:marked (boolean)\n";
    private static final String[] NAMES = {"a", "b c", "\u00fcn\u00efcode", "1st", "x_y", "_under", "__two", "a.b", "doc.xml", "page", "_x0041_", "\ud83d\ude00 face",
        "my:thing", "sling:stuff", "jcr:content", "my:under_score", "_my_thing", "percent%41", "q?<>\"&'", "dash-", ".hidden", "\u4e2d\u6587", "xmlns", "xml", "long.name.with.dots"};
    private static final String[] TEXTS = {"", "plain", "\n\t\r x", "[a", "{Long}1", "a,b", "\\", "\\0", "\ud83d\ude00", "\u0001\u001f", "\ufffe\uffff", " lead and trail ", "]]>&<>\"'",
        "[", "]", "{", "}", "\u0000", "\u0085\u2028", "\\u0041", "comma, [b], {c}", "\r\n"};

    private Vault() {}

    static Map<String, Object> run(Main m) throws Exception {
        File dir = new File(m.file(1), "segmentstore");
        FileStore store = Store.builder(dir, null).build();
        try {
            Repository repository = new Jcr(new Oak(SegmentNodeStoreBuilders.builder(store).build())).createRepository();
            try {
                Session session = repository.login(new SimpleCredentials("admin", "admin".toCharArray()));
                try {
                    switch (m.word(0)) {
                        case "vault-make":
                            new Maker(session, Long.parseLong(m.word(2))).make();
                            break;
                        case "vault-pack":
                            pack(session, m);
                            break;
                        default:
                            return install(session, m);
                    }
                } finally {
                    session.logout();
                }
            } finally {
                ((JackrabbitRepository) repository).shutdown();
            }
        } finally {
            store.close();
        }
        return Main.answer("done", true);
    }

    private static void types(Session session) throws Exception {
        CndImporter.registerNodeTypes(new StringReader(TYPES), session);
    }

    private static void pack(Session session, Main m) throws Exception {
        DefaultWorkspaceFilter filter = new DefaultWorkspaceFilter();
        for (int i = 3; i < m.count(); i++) {
            filter.add(new PathFilterSet(m.word(i)));
        }
        DefaultMetaInf about = new DefaultMetaInf();
        about.setFilter(filter);
        Properties p = new Properties();
        p.setProperty(PackageProperties.NAME_GROUP, "check");
        p.setProperty(PackageProperties.NAME_NAME, "check");
        p.setProperty(PackageProperties.NAME_VERSION, "1");
        about.setProperties(p);
        ExportOptions o = new ExportOptions();
        o.setMetaInf(about);
        new PackageManagerImpl().assemble(session, o, m.file(2)).close();
    }

    private static Map<String, Object> install(Session session, Main m) throws Exception {
        List<String> faults = new ArrayList<>();
        ImportOptions o = new ImportOptions();
        o.setStrict(true);
        o.setAccessControlHandling(AccessControlHandling.OVERWRITE);
        o.setListener(new ProgressTrackerListener() {
            @Override
            public void onMessage(Mode mode, String action, String path) {
                // Binaries are missing until they are set.
                if (action.equals("E") || action.equals("!") && !path.endsWith("/jcr:data")) {
                    faults.add(action + " " + path);
                }
            }

            @Override
            public void onError(Mode mode, String path, Exception e) {
                faults.add(path + ": " + e);
            }
        });
        ZipArchive archive = new ZipArchive(m.file(2));
        archive.open(true);
        try {
            Importer importer = new Importer(o);
            importer.run(archive, session.getRootNode());
            if (importer.hasErrors()) {
                faults.add("the importer has errors");
            }
        } finally {
            archive.close();
        }
        Map<String, Object> answer = Main.answer("faults", faults);
        return answer;
    }

    /** Makes random content below /content. */
    private static final class Maker {
        private final Session session;
        private final Random random;
        private final ValueFactory values;
        private final List<String> ids = new ArrayList<>();
        private int nodes;

        Maker(Session session, long seed) throws Exception {
            this.session = session;
            this.random = new Random(seed);
            this.values = session.getValueFactory();
        }

        void make() throws Exception {
            types(session);
            Node content = session.getRootNode().addNode("content", "sling:OrderedFolder");
            for (String name : new String[] {"site", "my:other", "plain.dots"}) {
                fill(content.addNode(name, name.equals("site") ? "sling:OrderedFolder" : "nt:unstructured"), 0);
            }
            Node files = content.addNode("files", "nt:folder");
            for (String name : new String[] {"a.txt", "b.html", "c", "d.unknown", "e.xml", "f.png", "g%41.txt", "_h_i.txt", "my:file.txt"}) {
                file(files, name);
            }
            files.addNode("empty", "nt:folder");
            Node wide = content.addNode("wide", "my:Loose");
            for (int i = 0; i < 300; i++) {
                wide.addNode("n" + random.nextInt(1 << 20) + "-" + i, "nt:unstructured").setProperty("i", i);
            }
            session.save();
        }

        private String pick(String[] of) {
            return of[random.nextInt(of.length)];
        }

        private void fill(Node node, int depth) throws Exception {
            if (!node.isNodeType("nt:unstructured") || random.nextInt(3) > 0) {
                properties(node);
            }
            for (int i = random.nextInt(depth == 0 ? 9 : 5); i > 0 && depth < 5 && nodes < 400; i--) {
                String name = pick(NAMES);
                if (node.hasNode(name)) {
                    continue;
                }
                nodes++;
                if (random.nextInt(8) == 0) {
                    file(node, name);
                    continue;
                }
                String type = pick(new String[] {"nt:unstructured", "nt:unstructured", "sling:Folder", "sling:OrderedFolder", "oak:Unstructured", "my:Ordered", "my:Loose"});
                Node child = node.addNode(name, type);
                fill(child, depth + 1);
            }
        }

        private void file(Node parent, String name) throws Exception {
            Node file = parent.addNode(name, "nt:file");
            String type = pick(new String[] {"nt:resource", "nt:resource", "oak:Resource", "nt:unstructured"});
            Node content = file.addNode("jcr:content", type);
            content.setProperty("jcr:data", values.createBinary(new ByteArrayInputStream(bytes())));
            content.setProperty("jcr:mimeType", pick(new String[] {"text/plain", "text/html", "application/x-own", "image/png"}));
            if (random.nextBoolean()) {
                content.setProperty("jcr:encoding", pick(new String[] {"utf-8", "latin1"}));
            }
            content.setProperty("jcr:lastModified", date());
            if (random.nextInt(3) == 0) {
                content.addMixin("my:Mark");
                content.setProperty("my:marked", true);
            }
            if (random.nextInt(4) == 0) {
                file.addMixin("mix:title");
                file.setProperty("jcr:title", pick(TEXTS));
            }
            if (type.equals("nt:unstructured") && random.nextBoolean()) {
                content.setProperty("more", values.createBinary(new ByteArrayInputStream(bytes())));
                content.addNode("below", "nt:unstructured").setProperty("x", pick(TEXTS));
            }
        }

        private byte[] bytes() {
            byte[] b = new byte[random.nextInt(4) == 0 ? random.nextInt(200_000) : random.nextInt(200)];
            random.nextBytes(b);
            return b;
        }

        private Calendar date() {
            Calendar c = Calendar.getInstance(TimeZone.getTimeZone("GMT+" + random.nextInt(10) + ":00"));
            c.setTimeInMillis(random.nextInt() * 1000L + random.nextInt(1000));
            return c;
        }

        private void properties(Node node) throws Exception {
            if (random.nextInt(4) == 0) {
                node.addMixin("mix:title");
                node.setProperty("jcr:title", pick(TEXTS));
            }
            if (random.nextInt(6) == 0) {
                node.addMixin("mix:referenceable");
                ids.add(node.getIdentifier());
            }
            for (int i = random.nextInt(6); i > 0; i--) {
                String name = pick(NAMES) + "P";
                if (node.hasProperty(name)) {
                    continue;
                }
                int type = new int[] {PropertyType.STRING, PropertyType.STRING, PropertyType.LONG, PropertyType.DOUBLE, PropertyType.BOOLEAN, PropertyType.DATE, PropertyType.NAME,
                    PropertyType.PATH, PropertyType.URI, PropertyType.DECIMAL, PropertyType.BINARY, PropertyType.WEAKREFERENCE}[random.nextInt(12)];
                if (type == PropertyType.WEAKREFERENCE && ids.isEmpty()) {
                    continue;
                }
                if (random.nextBoolean()) {
                    node.setProperty(name, value(type, false));
                    continue;
                }
                Value[] all = new Value[random.nextInt(4)];
                for (int k = 0; k < all.length; k++) {
                    all[k] = value(type, true);
                }
                node.setProperty(name, all, type);
            }
        }

        private Value value(int type, boolean several) throws Exception {
            switch (type) {
                case PropertyType.LONG:
                    return values.createValue(random.nextLong());
                case PropertyType.DOUBLE:
                    return values.createValue(random.nextDouble() * 1e20);
                case PropertyType.BOOLEAN:
                    return values.createValue(random.nextBoolean());
                case PropertyType.DATE:
                    return values.createValue(date());
                case PropertyType.NAME:
                    return values.createValue(pick(new String[] {"plain", "my:name", "jcr:content", "sling:x y"}), type);
                case PropertyType.PATH:
                    return values.createValue(pick(new String[] {"/a/b", "my:x/y", "relative/jcr:content", "/"}), type);
                case PropertyType.URI:
                    // The reference does not escape commas in several.
                    return values.createValue("http://example.org/?a=b" + (several ? "" : ",c"), type);
                case PropertyType.DECIMAL:
                    return values.createValue(new BigDecimal(random.nextLong()).movePointLeft(random.nextInt(20)));
                case PropertyType.BINARY:
                    return values.createValue(values.createBinary(new ByteArrayInputStream(bytes())));
                case PropertyType.WEAKREFERENCE:
                    return values.createValue(ids.get(random.nextInt(ids.size())), type);
                default:
                    return values.createValue(random.nextInt(10) == 0 ? String.join("", java.util.Collections.nCopies(9000, pick(TEXTS) + "\u00e9x")) : pick(TEXTS));
            }
        }
    }
}
