use orlop_store::*;
use std::time::Instant;
#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let store = Store::open(Config::new(Endpoint::parse(&args.next().unwrap()).unwrap())).await.unwrap();
    let clients: usize = args.next().unwrap().parse().unwrap();
    let n: usize = args.next().unwrap().parse().unwrap();
    let started = Instant::now();
    let mut tasks = Vec::new();
    for c in 0..clients {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for i in 0..n / clients {
                let put = Put::new(
                    format!("/registry/configmaps/default/object-{:08}", c * 1000 + i % 1000),
                    vec![b'x'; 1024],
                );
                store.txn(Txn::of([Op::Put(put)])).await.unwrap();
            }
        }));
    }
    for t in tasks {
        t.await.unwrap();
    }
    println!(
        "{:.0}/s  {:.1} us",
        n as f64 / started.elapsed().as_secs_f64(),
        started.elapsed().as_secs_f64() * 1e6 / n as f64
    );
}
