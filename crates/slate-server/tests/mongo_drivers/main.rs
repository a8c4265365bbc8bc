//! pymongo and Node's mongodb, unmodified, against the MongoDB port. What they do is in the scripts beside
//! this file; a script fails the test by failing.

use std::{path::Path, process::Command};

use slate_server::{Server, config::Config};

const NODE_PACKAGES: [&str; 1] = ["mongodb@7.8.0"];

async fn start(token: Option<&Path>) -> Server {
    let mut config = Config::for_test();
    config.mongo_addr = Some(([127, 0, 0, 1], 0).into());
    config.token_file = token.map(ToOwned::to_owned);
    Server::start(config).await.expect("a server")
}

fn url(server: &Server, credentials: &str) -> String {
    format!("mongodb://{credentials}{}/?directConnection=true", server.mongo_address().expect("an address"))
}

/// Runs a program to its last line, `done`.
async fn run(mut command: Command) {
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("a thread").expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("done\n"), "{text}");
}

fn python(script: &str) -> Command {
    let python = orlop_testbed::python::pymongo().expect("python");
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mongo_drivers").join(script));
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn pymongo_runs_unmodified() {
    let server = start(None).await;
    let mut command = python("documents.py");
    command.arg(url(&server, ""));
    run(command).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pymongo_authenticates_with_scram() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").expect("write");
    let server = start(Some(&token)).await;
    let mut command = python("authentication.py");
    command.arg(url(&server, "slate:secret@")).arg(url(&server, "slate:wrong@")).arg(url(&server, ""));
    run(command).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_driver_runs_unmodified() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").expect("write");
    let modules = orlop_testbed::node::modules("node-mongodb", &NODE_PACKAGES).expect("node");
    let server = start(Some(&token)).await;
    // Modules are looked for beside the script, so it goes where they are.
    let copy = modules.join(format!("documents-{}.mjs", std::process::id()));
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mongo_drivers/documents.mjs"), &copy)
        .expect("the script");
    let mut command = Command::new("node");
    command.arg(&copy).arg(url(&server, "slate:secret@"));
    run(command).await;
    let _ = std::fs::remove_file(copy);
    server.stop().await;
}
