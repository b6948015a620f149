import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Blob;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.operation.CleanOrphanFilesResult;
import org.apache.paimon.operation.LocalOrphanFilesClean;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.stats.Statistics;
import org.apache.paimon.table.ExpireChangelogImpl;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableScan;
import org.apache.paimon.table.system.SystemTableLoader;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.RowType;

/**
 * Paimon's own Java code behind one line of JSON per command: it builds tables, reads them, commits to them and
 * cleans them, so that another program's work can be judged by it. Answers {"ok": …} or {"error": "…"}.
 */
public class PaimonPeer {

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);  // libraries may print; the answers have the line to themselves
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode command = JSON.readTree(line);
                answer.set("ok", JSON.valueToTree(run(command.get("do").asText(), command)));
            } catch (Throwable e) {
                Throwable cause = e;
                StringBuilder text = new StringBuilder();
                while (cause != null) {
                    text.append(cause).append(" | ");
                    cause = cause.getCause();
                }
                answer.put("error", text.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
    }

    private static Object run(String verb, JsonNode c) throws Exception {
        switch (verb) {
            case "ping": return "pong";
            case "create": return create(c);
            case "write": return write(c);
            case "read": return read(c);
            case "everything": return everything(c);
            case "alter": return alter(c);
            case "tag": table(c).createTag(c.get("name").asText(), c.get("snapshot").asLong()); return null;
            case "delete_tag": table(c).deleteTag(c.get("name").asText()); return null;
            case "branch": return branch(c);
            case "delete_branch": table(c).deleteBranch(c.get("name").asText()); return null;
            case "fast_forward": table(c).fastForward(c.get("name").asText()); return null;
            case "rollback": table(c).rollbackTo(c.get("snapshot").asLong()); return null;
            case "expire": return expire(c);
            case "expire_changelogs": return table(c).newExpireChangelog().config(config(c)).expire();
            case "expire_partitions": return expirePartitions(c);
            case "drop_partitions": return dropPartitions(c);
            case "compact_manifests": return compactManifests(c);
            case "analyze": return analyze(c);
            case "orphans": return orphans(c);
            default: throw new IllegalArgumentException("unknown command " + verb);
        }
    }

    private static FileStoreTable table(JsonNode c) throws Exception {
        FileStoreTable table = FileStoreTableFactory.create(LocalFileIO.create(), new Path(c.get("path").asText()));
        return c.hasNonNull("on_branch") ? table.switchToBranch(c.get("on_branch").asText()) : table;
    }

    private static Object create(JsonNode c) throws Exception {
        Options options = new Options();
        options.set("warehouse", c.get("warehouse").asText());
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : c.get("fields")) {
            schema.column(
                    field.get(0).asText(), DataTypeJsonParser.parseAtomicTypeSQLString(field.get(1).asText()));
        }
        schema.partitionKeys(texts(c.get("partition_keys")));
        schema.primaryKey(texts(c.get("primary_keys")));
        schema.options(map(c.get("options")));
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            Identifier id = Identifier.create(c.get("database").asText(), c.get("table").asText());
            catalog.createDatabase(c.get("database").asText(), true);
            catalog.createTable(id, schema.build(), false);
            return ((FileStoreTable) catalog.getTable(id)).location().toString();
        }
    }

    private static Object alter(JsonNode c) throws Exception {
        List<SchemaChange> changes = new ArrayList<>();
        map(c.get("options")).forEach((key, value) -> changes.add(SchemaChange.setOption(key, value)));
        if (c.hasNonNull("add_column")) {
            JsonNode field = c.get("add_column");
            DataType type = DataTypeJsonParser.parseAtomicTypeSQLString(field.get(1).asText());
            changes.add(SchemaChange.addColumn(field.get(0).asText(), type));
        }
        table(c).schemaManager().commitChanges(changes);
        return null;
    }

    private static Object write(JsonNode c) throws Exception {
        FileStoreTable table = table(c);
        BatchWriteBuilder builder = table.newBatchWriteBuilder();
        if (c.hasNonNull("overwrite")) {
            builder.withOverwrite(map(c.get("overwrite")));
        }
        List<DataField> fields = table.rowType().getFields();
        File spill = Files.createTempDirectory("paimon-peer").toFile();
        try (BatchTableWrite write = builder.newWrite();
                BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(IOManager.create(spill.getPath()));
            for (JsonNode row : c.get("rows")) {
                GenericRow values = new GenericRow(fields.size());
                for (int i = 0; i < fields.size(); i++) {
                    values.setField(i, value(row.get(i), fields.get(i).type()));
                }
                if (c.hasNonNull("bucket")) {
                    write.write(values, c.get("bucket").asInt());
                } else {
                    write.write(values);
                }
                if (c.path("compact").asBoolean()) {
                    write.compact(
                            write.getPartition(values).copy(),
                            c.hasNonNull("bucket") ? c.get("bucket").asInt() : write.getBucket(values),
                            true);
                }
            }
            List<CommitMessage> messages = write.prepareCommit();
            if (!c.path("abandon").asBoolean()) {  // abandoned: the files are written, nobody commits them
                commit.commit(messages);
            }
        }
        return table.snapshotManager().latestSnapshotId();
    }

    private static Object value(JsonNode value, DataType type) {
        if (value == null || value.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case CHAR:
            case VARCHAR: return BinaryString.fromString(value.asText());
            case BOOLEAN: return value.asBoolean();
            case TINYINT: return (byte) value.asInt();
            case SMALLINT: return (short) value.asInt();
            case INTEGER: return value.asInt();
            case BIGINT: return value.asLong();
            case FLOAT: return (float) value.asDouble();
            case DOUBLE: return value.asDouble();
            case DATE: return (int) LocalDate.parse(value.asText()).toEpochDay();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromLocalDateTime(LocalDateTime.parse(value.asText()));
            case DECIMAL:
                org.apache.paimon.types.DecimalType decimal = (org.apache.paimon.types.DecimalType) type;
                return Decimal.fromBigDecimal(
                        new BigDecimal(value.asText()), decimal.getPrecision(), decimal.getScale());
            default: throw new IllegalArgumentException("no value of type " + type);
        }
    }

    private static Object read(JsonNode c) throws Exception {
        FileStoreTable table = table(c);
        Map<String, String> dynamic = new HashMap<>();
        if (c.hasNonNull("snapshot")) {
            dynamic.put("scan.snapshot-id", c.get("snapshot").asText());
        }
        if (c.hasNonNull("tag")) {
            dynamic.put("scan.tag-name", c.get("tag").asText());
        }
        if (c.hasNonNull("incremental")) {
            dynamic.put("incremental-between", c.get("incremental").asText());
        }
        if (!dynamic.isEmpty()) {
            table = table.copy(dynamic);
        }
        RowType type = table.rowType();
        ReadBuilder builder = table.newReadBuilder();
        if (c.hasNonNull("filter")) {
            PredicateBuilder predicates = new PredicateBuilder(type);
            JsonNode filter = c.get("filter");
            int index = type.getFieldNames().indexOf(filter.get(0).asText());
            builder.withFilter(
                    filter.get(1).isNull()
                            ? predicates.isNull(index)
                            : predicates.equal(index, value(filter.get(1), type.getTypeAt(index))));
        }
        List<InternalRow.FieldGetter> getters = new ArrayList<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            getters.add(InternalRow.createFieldGetter(type.getTypeAt(i), i));
        }
        List<String> rows = new ArrayList<>();
        try (RecordReader<InternalRow> reader =
                builder.newRead().executeFilter().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(
                    row -> {
                        List<String> cells = new ArrayList<>();
                        for (int i = 0; i < getters.size(); i++) {
                            cells.add(text(getters.get(i).getFieldOrNull(row), type.getTypeAt(i)));
                        }
                        rows.add(String.join("|", cells));
                    });
        }
        Collections.sort(rows);
        return rows;
    }

    /** Whatever can be asked of the table, by question: rows, or what went wrong. */
    private static Object everything(JsonNode c) throws Exception {
        FileStoreTable table = table(c);
        TreeSet<Long> ids = new TreeSet<>();
        table.snapshotManager().snapshots().forEachRemaining(one -> ids.add(one.id()));
        TreeSet<Long> starts = new TreeSet<>(ids);
        table.changelogManager().changelogs().forEachRemaining(one -> starts.add(one.id()));
        Map<String, Object> answers = new TreeMap<>();
        for (long id : ids) {
            ask(answers, "snapshot " + id, () -> batch(table, Map.of("scan.snapshot-id", "" + id)));
        }
        for (String tag : table.tagManager().allTagNames()) {
            ask(answers, "tag " + tag, () -> batch(table, Map.of("scan.tag-name", tag)));
        }
        for (long id : starts) {
            for (String view : Arrays.asList("", "audit_log", "binlog")) {
                ask(answers, "stream " + view + " from " + id, () -> stream(table, view, id));
            }
            for (String mode : Arrays.asList("delta", "changelog", "diff")) {
                for (long end : new long[] {id + 1, starts.last()}) {
                    Map<String, String> between = new HashMap<>();
                    between.put("incremental-between", id + "," + end);
                    between.put("incremental-between-scan-mode", mode);
                    ask(answers, mode + " between " + id + " and " + end, () -> batch(table, between));
                }
            }
        }
        return answers;
    }

    private interface Question {
        Object ask() throws Exception;
    }

    private static void ask(Map<String, Object> answers, String name, Question question) {
        try {
            answers.put(name, question.ask());
        } catch (Throwable e) {
            Throwable cause = e;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            answers.put(name, "error " + cause.getClass().getSimpleName() + " " + cause.getMessage());
        }
    }

    private static List<String> batch(FileStoreTable table, Map<String, String> dynamic) throws Exception {
        ReadBuilder builder = table.copy(dynamic).newReadBuilder();
        List<String> rows = new ArrayList<>();
        rows(builder, builder.newScan().plan(), table.rowType(), rows);
        Collections.sort(rows);
        return rows;
    }

    private static List<String> stream(FileStoreTable table, String view, long from) throws Exception {
        Map<String, String> dynamic = new HashMap<>();
        dynamic.put("scan.mode", "from-snapshot");
        dynamic.put("scan.snapshot-id", "" + from);
        dynamic.put("streaming-read-overwrite", "true");
        Table source = table.copy(dynamic);
        if (!view.isEmpty()) {
            source = SystemTableLoader.load(view, (FileStoreTable) source);
        }
        ReadBuilder builder = source.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        List<String> rows = new ArrayList<>();
        long latest = table.snapshotManager().latestSnapshotId();
        while (scan.checkpoint() == null || scan.checkpoint() <= latest) {
            rows(builder, scan.plan(), source.rowType(), rows);
        }
        Collections.sort(rows);
        return rows;
    }

    private static void rows(ReadBuilder builder, TableScan.Plan plan, RowType type, List<String> rows)
            throws Exception {
        List<InternalRow.FieldGetter> getters = new ArrayList<>();
        for (int i = 0; i < type.getFieldCount(); i++) {
            getters.add(InternalRow.createFieldGetter(type.getTypeAt(i), i));
        }
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(plan)) {
            reader.forEachRemaining(
                    row -> {
                        List<String> cells = new ArrayList<>();
                        cells.add(row.getRowKind().shortString());
                        for (int i = 0; i < getters.size(); i++) {
                            cells.add(text(getters.get(i).getFieldOrNull(row), type.getTypeAt(i)));
                        }
                        rows.add(String.join("|", cells));
                    });
        }
    }

    /** The value itself, also where the class says nothing but its address. */
    private static String text(Object value, DataType type) {
        if (value instanceof byte[]) {
            return Arrays.toString((byte[]) value);
        }
        List<String> parts = new ArrayList<>();
        if (value instanceof InternalMap) {
            MapType map = (MapType) type;
            InternalArray keys = ((InternalMap) value).keyArray();
            InternalArray values = ((InternalMap) value).valueArray();
            InternalArray.ElementGetter key = InternalArray.createElementGetter(map.getKeyType());
            InternalArray.ElementGetter held = InternalArray.createElementGetter(map.getValueType());
            for (int i = 0; i < keys.size(); i++) {
                parts.add(
                        text(key.getElementOrNull(keys, i), map.getKeyType())
                                + "="
                                + text(held.getElementOrNull(values, i), map.getValueType()));
            }
        } else if (value instanceof InternalArray) {
            DataType element = ((ArrayType) type).getElementType();
            InternalArray.ElementGetter getter = InternalArray.createElementGetter(element);
            for (int i = 0; i < ((InternalArray) value).size(); i++) {
                parts.add(text(getter.getElementOrNull((InternalArray) value, i), element));
            }
        } else if (value instanceof InternalRow) {
            for (DataField field : ((RowType) type).getFields()) {
                int at = parts.size();
                Object inner = InternalRow.createFieldGetter(field.type(), at).getFieldOrNull((InternalRow) value);
                parts.add(text(inner, field.type()));
            }
        } else if (value instanceof Blob) {
            return Arrays.toString(((Blob) value).toData());
        } else {
            return String.valueOf(value);
        }
        return parts.toString();
    }

    private static Object branch(JsonNode c) throws Exception {
        if (c.hasNonNull("tag")) {
            table(c).createBranch(c.get("name").asText(), c.get("tag").asText());
        } else {
            table(c).createBranch(c.get("name").asText());
        }
        return null;
    }

    private static ExpireConfig config(JsonNode c) {
        ExpireConfig.Builder builder = ExpireConfig.builder();
        builder.snapshotRetainMax(c.path("retain_max").asInt(Integer.MAX_VALUE));
        builder.snapshotRetainMin(c.path("retain_min").asInt(10));
        builder.snapshotTimeRetain(Duration.ofMillis(c.path("retain_millis").asLong(3_600_000)));
        builder.snapshotMaxDeletes(c.path("limit").asInt(10));
        if (c.hasNonNull("changelog_retain_max")) {
            builder.changelogRetainMax(c.get("changelog_retain_max").asInt());
        }
        if (c.hasNonNull("changelog_retain_min")) {
            builder.changelogRetainMin(c.get("changelog_retain_min").asInt());
        }
        if (c.hasNonNull("changelog_retain_millis")) {
            builder.changelogTimeRetain(Duration.ofMillis(c.get("changelog_retain_millis").asLong()));
        }
        builder.changelogMaxDeletes(c.path("limit").asInt(10));
        return builder.build();
    }

    private static Object expire(JsonNode c) throws Exception {
        return table(c).newExpireSnapshots().config(config(c)).expire();
    }

    private static Object expirePartitions(JsonNode c) throws Exception {
        FileStoreTable table = table(c);
        return table.store().newPartitionExpire("peer", table).expire(Long.MAX_VALUE);
    }

    private static Object dropPartitions(JsonNode c) throws Exception {
        List<Map<String, String>> specs = new ArrayList<>();
        c.get("partitions").forEach(spec -> specs.add(map(spec)));
        try (BatchTableCommit commit = table(c).newBatchWriteBuilder().newCommit()) {
            commit.truncatePartitions(specs);
        }
        return null;
    }

    private static Object compactManifests(JsonNode c) throws Exception {
        try (BatchTableCommit commit = table(c).newBatchWriteBuilder().newCommit()) {
            commit.compactManifests();
        }
        return null;
    }

    private static Object analyze(JsonNode c) throws Exception {
        FileStoreTable table = table(c);
        try (BatchTableCommit commit = table.newBatchWriteBuilder().newCommit()) {
            commit.updateStatistics(
                    new Statistics(
                            table.snapshotManager().latestSnapshotId(),
                            table.schema().id(),
                            c.path("rows").asLong(1),
                            c.path("bytes").asLong(1)));
        }
        return null;
    }

    private static Object orphans(JsonNode c) throws Exception {
        long olderThan = System.currentTimeMillis() - c.path("older_than_millis").asLong(86_400_000);
        CleanOrphanFilesResult result =
                new LocalOrphanFilesClean(table(c), olderThan, c.path("dry_run").asBoolean()).clean();
        List<String> paths = new ArrayList<>();
        if (result.getDeletedFilesPath() != null) {
            result.getDeletedFilesPath().forEach(path -> paths.add(path.toString()));
        }
        Collections.sort(paths);
        Map<String, Object> answer = new TreeMap<>();
        answer.put("count", result.getDeletedFileCount());
        answer.put("paths", paths);
        return answer;
    }

    private static List<String> texts(JsonNode node) {
        List<String> found = new ArrayList<>();
        if (node != null) {
            node.forEach(text -> found.add(text.asText()));
        }
        return found;
    }

    private static Map<String, String> map(JsonNode node) {
        Map<String, String> found = new HashMap<>();
        if (node != null) {
            node.fields().forEachRemaining(entry -> found.put(entry.getKey(), entry.getValue().asText()));
        }
        return found;
    }
}
