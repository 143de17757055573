package oakcheck;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import com.microsoft.azure.storage.CloudStorageAccount;
import com.microsoft.azure.storage.blob.BlobListingDetails;
import com.microsoft.azure.storage.blob.CloudBlob;
import com.microsoft.azure.storage.blob.CloudBlobContainer;
import com.microsoft.azure.storage.blob.CloudBlobDirectory;
import com.microsoft.azure.storage.blob.ListBlobItem;
import org.apache.jackrabbit.oak.segment.azure.AzurePersistence;
import org.apache.jackrabbit.oak.segment.azure.tool.AzureCheck;
import org.apache.jackrabbit.oak.segment.azure.tool.SegmentStoreMigrator;
import org.apache.jackrabbit.oak.segment.file.FileStore;
import org.apache.jackrabbit.oak.segment.file.FileStoreBuilder;
import org.apache.jackrabbit.oak.segment.file.ReadOnlyFileStore;
import org.apache.jackrabbit.oak.spi.blob.BlobStore;

/** Stores in containers of Azure, as the reference keeps them. */
final class Azure {
    private Azure() {}

    /** The arguments are a connection, a container and a prefix, and what a command needs besides. */
    static Map<String, Object> run(Main m) throws Exception {
        CloudBlobContainer container = CloudStorageAccount.parse(m.word(1)).createCloudBlobClient().getContainerReference(m.word(2));
        container.createIfNotExists();
        CloudBlobDirectory dir = container.getDirectoryReference(m.word(3));
        switch (m.word(0)) {
            case "azure-put":
                return migrated(new SegmentStoreMigrator.Builder().withSource(m.file(4)).withTarget(dir));
            case "azure-get":
                return migrated(new SegmentStoreMigrator.Builder().withSource(dir).withTarget(m.file(4)));
            case "azure-same":
                return same(dir, m);
            case "azure-open":
                builder(dir, Store.blobs(m.datastore)).build().close();
                return Main.answer("faults", new ArrayList<String>());
            case "azure-commit":
                return commit(dir, m);
            case "azure-check":
                return check(dir);
            case "azure-list":
                return list(dir);
            default:
                throw new IllegalArgumentException("no such command");
        }
    }

    private static Map<String, Object> migrated(SegmentStoreMigrator.Builder b) throws Exception {
        try (SegmentStoreMigrator s = b.build()) {
            s.migrate();
        }
        return Main.answer("faults", new ArrayList<String>());
    }

    private static FileStoreBuilder builder(CloudBlobDirectory dir, BlobStore blobs) throws Exception {
        return Store.builder(Files.createTempDirectory("oakcheck").toFile(), blobs).withCustomPersistence(new AzurePersistence(dir));
    }

    /** The nodes of a store in Azure are those of one in a folder, and its revision is. */
    private static Map<String, Object> same(CloudBlobDirectory dir, Main m) throws Exception {
        BlobStore blobs = Store.blobs(m.datastore);
        List<String> faults = new ArrayList<>();
        try (ReadOnlyFileStore a = builder(dir, blobs).buildReadOnly(); ReadOnlyFileStore b = Store.builder(m.store(4), blobs).buildReadOnly()) {
            String x = a.getRevisions().getHead().toString10(), y = b.getRevisions().getHead().toString10();
            if (!x.equals(y)) {
                faults.add("head: " + x + " and " + y);
            }
            Checks.same("", Store.nodes(a.getHead(), blobs != null, true), Store.nodes(b.getHead(), blobs != null, true), faults);
        }
        return Main.answer("faults", faults);
    }

    /** A store takes a commit, and keeps what it had; a checkpoint is not needed for that. */
    private static Map<String, Object> commit(CloudBlobDirectory dir, Main m) throws Exception {
        BlobStore blobs = Store.blobs(m.datastore);
        List<Object> before;
        try (ReadOnlyFileStore s = builder(dir, blobs).buildReadOnly()) {
            before = Store.nodes(s.getHead(), blobs != null, false);
        }
        try (FileStore s = builder(dir, blobs).build()) {
            Checks.commitMark(s, m.word(4));
        }
        List<String> faults = new ArrayList<>();
        try (ReadOnlyFileStore s = builder(dir, blobs).buildReadOnly()) {
            String mark = s.getHead().getChildNode("root").getChildNode(Checks.MARK).getString("mark");
            if (!m.word(4).equals(mark)) {
                faults.add("the commit: found " + mark);
            }
            Map<String, Object> was = Checks.byPath(before), is = Checks.byPath(Store.nodes(s.getHead(), blobs != null, false));
            was.remove("/root/" + Checks.MARK);
            is.remove("/root/" + Checks.MARK);
            Checks.same("", was, is, faults);
        }
        return Main.answer("faults", faults);
    }

    /** The reference's check, of head, checkpoints and binaries. */
    private static Map<String, Object> check(CloudBlobDirectory dir) throws Exception {
        StringWriter said = new StringWriter();
        PrintWriter w = new PrintWriter(said, true);
        int code = AzureCheck.builder().withCloudBlobDirectory(dir).withCheckBinaries(true).withCheckHead(true)
                .withCheckpoints(new LinkedHashSet<>(Collections.singleton("all"))).withFilterPaths(new LinkedHashSet<>(Collections.singleton("/")))
                .withRevisionsCount(1).withOutWriter(w).withErrWriter(w).build().run();
        w.flush();
        List<String> faults = new ArrayList<>();
        if (code != 0) {
            faults.add("exit code " + code);
        }
        Map<String, Object> a = Main.answer("faults", faults);
        a.put("out", Arrays.asList(said.toString().split("\n")));
        return a;
    }

    private static Map<String, Object> list(CloudBlobDirectory dir) throws Exception {
        List<Object> all = new ArrayList<>();
        for (ListBlobItem i : dir.listBlobs(null, true, EnumSet.of(BlobListingDetails.METADATA), null, null)) {
            CloudBlob b = (CloudBlob) i;
            all.add(Arrays.asList(b.getName(), b.getProperties().getLength(), b.getProperties().getBlobType().toString(), new TreeMap<>(b.getMetadata())));
        }
        return Main.answer("blobs", all);
    }
}
