import java.io.File;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/**
 * A Flink job that writes the numbers 1, 2, 3, ... as a stream: until a savepoint, or on from one.
 *
 * Arguments: the SQL of the catalog, the table (created if it is not there), a directory that gets
 * a file with each commit, what those files are called, how many of them to write, the directory of
 * savepoints, and the savepoint to go on from, if any. Tells the savepoint it ends with. A savepoint commits nothing, and the job is cancelled at once, so what it
 * wrote last is known to the savepoint alone.
 */
public class FlinkStream {
  public static void main(String[] args) throws Exception {
    String catalog = args[0], table = args[1], savepoints = args[5];
    File commits = new File(args[2]);
    Pattern name = Pattern.compile(args[3]);
    int wanted = Integer.parseInt(args[4]);
    int before = count(commits, name);
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", "2s");
    settings.setString("parallelism.default", "1");
    settings.setString("rest.bind-port", "0");
    settings.setString("taskmanager.memory.network.max", "64mb");
    settings.setString("restart-strategy.type", "fixed-delay");
    settings.setString("restart-strategy.fixed-delay.attempts", "1");
    settings.setString("restart-strategy.fixed-delay.delay", "1s");
    if (args.length > 6) {
      settings.setString("execution.state-recovery.path", args[6]);
    }
    TableEnvironment flink = TableEnvironment.create(
        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
    flink.executeSql(catalog);
    flink.executeSql("CREATE DATABASE IF NOT EXISTS lake.db");
    flink.executeSql("CREATE TABLE IF NOT EXISTS lake.db." + table + " (id BIGINT)");
    flink.executeSql(
        "CREATE TEMPORARY TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50', "
            + "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '20000')");
    JobClient job =
        flink.executeSql("INSERT INTO lake.db." + table + " SELECT id FROM numbers").getJobClient().get();
    while (count(commits, name) < before + wanted) {
      TimeUnit.MILLISECONDS.sleep(100);
    }
    TimeUnit.MILLISECONDS.sleep(500); // something that is not committed
    String savepoint = job
        .triggerSavepoint(Path.of(savepoints).toUri().toString(), SavepointFormatType.CANONICAL)
        .get(60, TimeUnit.SECONDS);
    job.cancel().get(60, TimeUnit.SECONDS);
    System.out.println("SAVEPOINT " + savepoint);
    System.exit(0);
  }

  private static int count(File directory, Pattern name) {
    String[] found = directory.list((where, one) -> name.matcher(one).matches());
    return found == null ? 0 : found.length;
  }
}
