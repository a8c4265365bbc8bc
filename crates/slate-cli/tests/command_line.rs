//! `slate-cli` as a program.

use std::{
    io::{Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use slate_server::{Server, config::Config};

async fn cli(server: &Server, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slate-cli"));
    command.args(["--addr", &server.address().to_string()]).args(arguments);
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_and_documents_travel_as_json_lines() {
    let server = Server::start(Config::for_test()).await.expect("a server");
    let folder = tempfile::tempdir().expect("a folder");
    let (source, copy) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let lines: String = (0..2500)
        .map(|n| {
            format!(
                "{{\"_id\":{n},\"at\":{{\"$date\":\"2026-01-01T00:00:00Z\"}},\"tags\":[\"a\",{}]}}\n",
                n % 3
            )
        })
        .collect();
    std::fs::write(&source, &lines).expect("write");
    let (success, output_text) = cli(&server, &["import", "things", source.to_str().expect("a path")]).await;
    assert!(success && output_text.contains("imported 2500 documents"), "{output_text}");
    let (success, output_text) = cli(&server, &["export", "things", copy.to_str().expect("a path")]).await;
    assert!(success && output_text.contains("exported 2500 documents"), "{output_text}");
    assert_eq!(std::fs::read_to_string(&copy).expect("read"), lines);
    let (success, output_text) = cli(&server, &["import", "things", source.to_str().expect("a path")]).await;
    assert!(!success && output_text.contains("duplicate key"), "{output_text}");

    let run = async |words: &[&str]| cli(&server, &[&["run"], words].concat()).await;
    assert_eq!(run(&["count", "things", r#"{"tags": 1}"#]).await, (true, "833\n".to_owned()));
    assert_eq!(run(&["index", "things", "tags"]).await, (true, "indexed\n".to_owned()));
    let (_, output_text) = run(&["explain", "things", r#"{"tags": 1}"#]).await;
    assert!(output_text.contains("IXSCAN"), "{output_text}");
    let (_, output_text) = run(&["get", "things", "7"]).await;
    assert!(output_text.starts_with(r#"{"_id":7,"#), "{output_text}");
    let (_, output_text) = cli(&server, &["--output", "table", "run", "collections"]).await;
    assert!(output_text.contains("things") && output_text.contains("2500"), "{output_text}");
    let (success, output_text) = run(&["find", "nowhere"]).await;
    assert!(!success && output_text.contains("does not exist"), "{output_text}");
    let (success, output_text) = run(&["frobnicate"]).await;
    assert!(!success && output_text.contains("help"), "{output_text}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_does_what_its_help_says() {
    let server = Server::start(Config::for_test()).await.expect("a server");
    let steps: &[(&[&str], &str)] = &[
        (&["create", "c", "status"], "created\n"),
        (&["index", "c", "unique", "-n"], "indexed\n"),
        (&["insert", "c", r#"{"_id": 1, "status": "a", "n": 1}"#], "inserted 1\n"),
        (&["upsert", "c", r#"{"_id": 2, "status": "b", "n": 2}"#], "inserted 1, replaced 0\n"),
        (&["merge", "c", r#"{"_id": 2, "x": true}"#], "inserted 0, merged 1\n"),
        (
            &["find", "c", r#"{"n": {"$gt": 0}}"#, r#"{"n": -1}"#, "1", r#"{"status": 0}"#],
            "{\"_id\":2,\"n\":2,\"x\":true}\n",
        ),
        (&["get", "c", "1"], "{\"_id\":1,\"status\":\"a\",\"n\":1}\n"),
        (&["update", "c", r#"{"n": 1}"#, r#"{"$inc": {"n": 9}}"#], "matched 1, modified 1\n"),
        (&["replace", "c", r#"{"_id": 2}"#, r#"{"status": "c"}"#], "replaced 1\n"),
        (&["distinct", "c", "status"], "{\"status\":\"a\"}\n{\"status\":\"c\"}\n"),
        (&["count", "c", r#"{"n": 10}"#], "1\n"),
        (&["delete", "c", r#"{"status": "c"}"#], "deleted 1\n"),
        (&["unindex", "c", "status_1"], "dropped\n"),
        (
            &["indexes", "c"],
            "{\"name\":\"n_-1\",\"fields\":\"-n\",\"unique\":true,\"ttl\":null,\"ready\":true,\"indexed\":\"1/1\"}\n",
        ),
        (&["collections"], "{\"name\":\"c\",\"documents\":1,\"indexes\":1}\n"),
        (&["drop", "c"], "dropped\n"),
        (&["collections"], ""),
    ];
    for (words, expected) in steps {
        let (success, text) = cli(&server, &[&["run"], *words].concat()).await;
        assert!(success && text == *expected, "{words:?}: {text}");
    }
    let (_, text) = cli(&server, &["run", "ping"]).await;
    assert!(text.contains("store memory"), "{text}");
    server.stop().await;
}

/// Emitted by the editor when it begins to read a line: bracketed paste on.
const READS_LINE: &str = "\u{1b}[?2004h";

/// Runs the prompt in a terminal of its own (`script`, of util-linux) and types each line when it is asked for.
async fn prompt(server: &Server, home: &Path, lines: &'static [&'static str]) -> (bool, String) {
    let program = format!("{} --addr {} --output json", env!("CARGO_BIN_EXE_slate-cli"), server.address());
    let mut command = Command::new("timeout");
    command.args(["--foreground", "60", "script", "-qec", &program, "/dev/null"]);
    command.env("HOME", home).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("script runs");
        let mut keyboard = child.stdin.take().expect("a pipe");
        let mut screen = child.stdout.take().expect("a pipe");
        let (mut text, mut chunk) = (String::new(), [0; 4096]);
        for (position, line) in lines.iter().enumerate() {
            while text.matches(READS_LINE).count() <= position {
                let length = screen.read(&mut chunk).expect("read");
                assert!(length > 0, "it ended before {line:?}: {text}");
                text.push_str(&String::from_utf8_lossy(&chunk[..length]));
            }
            keyboard.write_all(line.as_bytes()).and_then(|()| keyboard.write_all(b"\r")).expect("write");
        }
        let mut rest = Vec::new();
        screen.read_to_end(&mut rest).expect("read");
        text.push_str(&String::from_utf8_lossy(&rest));
        (child.wait().expect("its end").success(), text)
    });
    ran.await.expect("a thread")
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_goes_on_after_errors_completes_and_keeps_its_history() {
    const INSERT: &str = r#"insert accounts {"_id": 1, "text": "two words"}"#;
    const LINES: &[&str] = &["create accounts status", "find nowhere", INSERT, "exit"];
    let server = Server::start(Config::for_test()).await.expect("a server");
    let home = tempfile::tempdir().expect("a folder");
    let (success, text) = prompt(&server, home.path(), LINES).await;
    assert!(success && text.contains("created\r\n") && text.contains("inserted 1\r\n"), "{text}");
    assert!(text.contains("connected (store memory)") && text.contains("does not exist"), "{text}");
    // Tab completes the collection.
    let (success, text) = prompt(&server, home.path(), &["get acc\t 1", "exit"]).await;
    assert!(success && text.contains(r#"{"_id":1,"text":"two words"}"#), "{text}");
    let history = std::fs::read_to_string(home.path().join(".slate_history")).expect("the history");
    let typed: Vec<&str> = history.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(typed, ["create accounts status", "find nowhere", INSERT, "exit", "get accounts 1", "exit"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_and_certificate_open_a_guarded_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    // Verified by address, as the default one is.
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(path("tls.crt"), made.cert.pem()).expect("write");
    std::fs::write(path("tls.key"), made.signing_key.serialize_pem()).expect("write");
    std::fs::write(path("token"), "secret\n").expect("write");
    let mut config = Config::for_test();
    config.token_file = Some(path("token").into());
    config.tls_cert = Some(path("tls.crt").into());
    config.tls_key = Some(path("tls.key").into());
    let server = Server::start(config).await.expect("a server");
    let (certificate, token) = (path("tls.crt"), path("token"));
    let (tls, token) = (["--tls-ca", &certificate], ["--token-file", &token]);
    let run = ["run", "collections"];
    assert!(!cli(&server, &run).await.0, "plain text");
    let (success, text) = cli(&server, &[&tls[..], &run].concat()).await;
    assert!(!success && text.contains("token"), "{text}");
    let (success, text) = cli(&server, &[&tls[..], &token, &run].concat()).await;
    assert!(success, "{text}");
    server.stop().await;
}
