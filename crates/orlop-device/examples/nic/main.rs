//! A second device kind, from outside the crate: the network interfaces of a node.
//!
//! This file and `nic.proto` are all there is to it. Run it, and look at it with any gRPC client:
//!
//! ```text
//! cargo run -p orlop-device --example nic -- /tmp/nic.sock
//! grpcurl -plaintext -unix /tmp/nic.sock list
//! ```

#[path = "kind.rs"]
mod kind;

use orlop_device::{Config, Server, kinds::GPU, server::WritePolicy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("say where the socket shall be")?;
    let config = Config {
        kinds: vec![&GPU, &kind::NIC],
        socket: Some(path.clone().into()),
        policy: WritePolicy { any_process: true, ..WritePolicy::default() },
        ..Config::default()
    };
    let server = Server::start(config).await?;
    println!("gpus and nics at unix://{path}; Enter ends it");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    server.stop().await;
    Ok(())
}
