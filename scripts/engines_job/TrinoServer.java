import io.trino.server.Server;

/** Starts Trino. The class that does so in Trino's archive is not on Maven Central. */
public class TrinoServer {
    public static void main(String[] versions) {
        new Server().start(versions[0]);
    }
}
