//! The command line. Each subcommand has its own file.

mod access;
mod background;
mod compose;
mod controllers;
mod device;
mod encrypt;
mod envtest;
mod etcd;
mod logging;
mod node;
mod private_key;
mod rotate;
mod serve;
mod shutdown;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};

// For many small allocations on many threads: the process stays about a third smaller than with the system
// allocator, and memory of a burst is returned. Without huge pages, which would make it half as large again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kubernetes' API machinery as one small program on an ordinary SQL database.
#[derive(Debug, Parser)]
#[command(name = "orlop", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logging: logging::Logging,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a Kubernetes API server on SQLite or PostgreSQL.
    Serve(Box<serve::Arguments>),
    Etcd(Box<etcd::Etcd>),
    Device(device::Device),
    Compose(compose::Compose),
    Controllers(controllers::Arguments),
    User(access::user::User),
    Token(access::token::Token),
    Kubeconfig(access::kubeconfig::Arguments),
    /// Run a node: pods as processes of this machine.
    Node(Box<node::Arguments>),
    Encrypt(encrypt::Encrypt),
    Rotate(rotate::Rotate),
    Envtest(envtest::Envtest),
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // In one line: the debug form has a backtrace where RUST_BACKTRACE asks for one, of no use to users.
        eprintln!("Error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    // Before any thread: a container's monitor may have to enter a user namespace.
    if let Some(code) = orlop_node::shim::main() {
        return Ok(code);
    }
    end_with_the_reader();
    let arguments = match envtest::Called::of(std::env::args_os())? {
        envtest::Called::Orlop => Arguments::parse(),
        envtest::Called::As(own) => Arguments::parse_from(own),
        envtest::Called::Answered => return Ok(ExitCode::SUCCESS),
    };
    arguments.logging.start()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Blocking threads wait for the database. More of them than it has readers only hold memory, which is
    // returned when they end.
    runtime.max_blocking_threads(8).thread_keep_alive(Duration::from_secs(2));
    if matches!(arguments.command, Command::Device(_)) {
        // A daemon on every node stays small, however many cores the node has.
        runtime.worker_threads(2).max_blocking_threads(4);
    }
    runtime.enable_all().build()?.block_on(async {
        match arguments.command {
            Command::Serve(arguments) => serve::run(*arguments).await,
            Command::Etcd(etcd) => etcd.run().await,
            Command::Device(device) => device.run().await,
            Command::Compose(compose) => compose.run().await,
            Command::Controllers(arguments) => controllers::run(arguments).await,
            Command::User(user) => user.run().await,
            Command::Token(token) => token.run().await,
            Command::Kubeconfig(kubeconfig) => kubeconfig.run(),
            Command::Node(arguments) => node::run(*arguments).await,
            Command::Encrypt(encrypt) => encrypt.run().await,
            Command::Rotate(rotate) => rotate.run().await,
            Command::Envtest(envtest) => envtest.run(),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the process quietly, as programs of C do, when what it prints has no reader any more: `orlop compose manifests | head`.
fn end_with_the_reader() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            std::process::exit(0);
        }
        default(panic);
    }));
}
