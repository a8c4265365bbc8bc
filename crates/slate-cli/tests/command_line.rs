//! `slate-cli` as a program.

use std::process::Command;

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
