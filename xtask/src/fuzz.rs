//! `cargo xtask fuzz --minutes N`: hostile requests against the release build.
//!
//! Half of the time goes to mutated requests of our own (`orlop-fuzz`), half to schemathesis, which makes
//! requests from each published OpenAPI document. No request may be answered with a 5xx.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    smoke::{self, Server},
    steps::{Steps, cargo},
};

const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// Documents that get most of the time; all others share the rest.
const IN_FULL: [&str; 3] = ["api/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"];
/// Watches would outlast their time limit, and are fuzzed by `orlop-fuzz`.
const HOOKS: &str = "\
import schemathesis

@schemathesis.hook
def map_query(context, query):
    if query:
        query.pop('watch', None)
    return query
";

pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let minutes: f64 = match arguments {
        ["--minutes", minutes] => minutes.parse().map_err(|_| format!("not a number: {minutes}"))?,
        [] => 2.0,
        _ => return Err("cargo xtask fuzz [--minutes N]".to_owned()),
    };
    let mut steps = Steps::default();
    steps.step("release build", || {
        smoke::build()?;
        cargo(&["build", "--release", "--quiet", "--package", "orlop-fuzz"])
    })?;
    let address = free_address()?;
    let options = ["--insecure-listen", &address];
    let server = Server::start(&orlop_testbed::debian::kubectl()?, "memory", &options)?;
    let token = server.folder().join("pki/admin.token");
    let seconds = minutes * 60.0;
    steps.step("mutated requests", || {
        let mut command = Command::new(smoke::release_program("orlop-fuzz"));
        command.args(["--server", &address, "--seconds", &format!("{:.0}", seconds / 2.0), "--token-file"]);
        check(command.arg(&token))
    })?;
    steps.step("schemathesis", || schemathesis(&server, &address, &token, seconds / 2.0))?;
    server.kubectl(&["get", "--raw", "/readyz"], "")?;
    steps.summary("ok");
    Ok(())
}

fn schemathesis(server: &Server, address: &str, token: &Path, seconds: f64) -> Result<(), String> {
    let python = orlop_testbed::python::environment("schemathesis", &[SCHEMATHESIS])?;
    let hooks = server.folder().join("hooks.py");
    fs::write(&hooks, HOOKS).map_err(|error| format!("{}: {error}", hooks.display()))?;
    let token = fs::read_to_string(token).map_err(|error| format!("{}: {error}", token.display()))?;
    let others = documents(server)?;
    // Each document in full gets a fifth of the time.
    let share = seconds / 5.0;
    let rest = seconds - share * IN_FULL.len() as f64;
    let in_full = IN_FULL.iter().map(|document| ((*document).to_owned(), share));
    let count = others.len().max(1) as f64;
    let others = others.into_iter().filter(|document| !IN_FULL.contains(&document.as_str()));
    for (document, seconds) in in_full.chain(others.map(|document| (document, rest / count))) {
        println!("    {document}");
        let mut command = Command::new(python.with_file_name("schemathesis"));
        command
            .env("SCHEMATHESIS_HOOKS", &hooks)
            // It keeps a cache in its working directory.
            .current_dir(server.folder())
            .arg("run")
            .arg(format!("http://{address}/openapi/v3/{document}"))
            .args(["--url", &format!("http://{address}")])
            .args(["--header", &format!("Authorization: Bearer {}", token.trim())])
            // Its coverage phase meets a fault of Python 3.11 (a recursion depth mismatch in `ast`), so it is left out.
            .args(["--checks", "not_a_server_error", "--phases", "fuzzing"])
            .args(["--max-time", &format!("{:.0}", seconds.max(2.0)), "--workers", "1", "--no-color"])
            .args(["--suppress-health-check", "all", "--request-timeout", "70", "--warnings", "off"])
            .args(["--exclude-path-regex", "/watch/|/proxy|/exec|/attach|/portforward"]);
        check(&mut command)?;
    }
    Ok(())
}

/// Returns the paths of the published OpenAPI documents.
fn documents(server: &Server) -> Result<Vec<String>, String> {
    let index = server.kubectl(&["get", "--raw", "/openapi/v3"], "")?;
    // {"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=…"}, …}}
    let links = index.split("\"/openapi/v3/").skip(1);
    let paths = links.filter_map(|link| link.split(['?', '"']).next().map(str::to_owned));
    // Groups of our own go when schemathesis deletes their definitions.
    let is_wanted = |path: &String| path.contains("/v") && !path.contains("example.com");
    Ok(paths.filter(is_wanted).collect())
}

fn check(command: &mut Command) -> Result<(), String> {
    let program = PathBuf::from(command.get_program());
    let status = command.status().map_err(|error| format!("{}: {error}", program.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", program.display())) }
}

fn free_address() -> Result<String, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.to_string()).map_err(|error| error.to_string())
}
