import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/** Runs SQL that comes line by line, a mode and a statement in base64; answers rows, then "done" or "failed: why". */
public class Statements {
  public static void main(String[] arguments) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    var batch = environment(true);
    var streaming = environment(false);
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      String statement = new String(java.util.Base64.getDecoder().decode(words[1]), StandardCharsets.UTF_8);
      try {
        var result = (words[0].equals("streaming") ? streaming : batch).executeSql(statement);
        if (statement.startsWith("INSERT")) {
          result.await();
        } else {
          try (CloseableIterator<Row> rows = result.collect()) {
            rows.forEachRemaining(row -> out.println("row " + row));
          }
        }
        out.println("done");
      } catch (Throwable failure) {
        out.println("failed: " + reasons(failure));
      }
      out.flush();
    }
    System.exit(0);
  }

  private static TableEnvironment environment(boolean isBatch) {
    var settings =
        Map.of(
            "parallelism.default", "1",
            "execution.checkpointing.interval", "1s",
            "classloader.check-leaked-classloader", "false");
    var builder = EnvironmentSettings.newInstance().withConfiguration(Configuration.fromMap(settings));
    return TableEnvironment.create((isBatch ? builder.inBatchMode() : builder.inStreamingMode()).build());
  }

  private static String reasons(Throwable failure) {
    var said = new StringBuilder();
    for (Throwable each = failure; each != null; each = each.getCause()) {
      said.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append("; ");
    }
    return said.toString().replace('\n', ' ');
  }
}
