import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.SparkSession;

/** Runs SQL that comes line by line in base64; answers rows as JSON, then "done" or "failed: why". */
public class SparkStatements {
  public static void main(String[] arguments) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    System.setOut(System.err);
    var session = SparkSession.builder().getOrCreate();
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String statement = new String(java.util.Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
      try {
        session.sql(statement).toJSON().collectAsList().forEach(row -> out.println("row " + row));
        out.println("done");
      } catch (Throwable failure) {
        out.println("failed: " + failure.toString().replace('\n', ' '));
      }
      out.flush();
    }
    session.stop();
    System.exit(0);
  }
}
