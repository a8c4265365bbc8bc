//! Evaluations per second of typical rules: `cargo run --release -p orlop-cel --example evaluations`.

use std::time::{Duration, Instant};

use orlop_cel::{Activation, Budget, Env, Schema};
use serde_json::json;

const MEASURED: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "maxLength": 63}, "schedule": {"type": "string", "format": "date-time"},
            "cpu": {"x-kubernetes-int-or-string": true},
            "ports": {"type": "array", "maxItems": 100, "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer"}, "protocol": {"type": "string"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
    }});
    let schema = Schema::from_openapi("Widget", &schema, true).ok_or("the schema is not visible")?;
    let ports: Vec<_> =
        (0..20).map(|n| json!({"name": format!("p{n}"), "port": 8000 + n, "protocol": "TCP"})).collect();
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"replicas": 3, "min": 1, "max": 5, "name": "my-widget", "schedule": "2024-01-01T00:00:00Z",
                 "cpu": "500m", "ports": ports, "labels": {"app": "widget", "tier": "back"}},
    });
    let older = widget.clone();
    let env = Env::kubernetes(34).schema("self", &schema).schema("oldSelf", &schema).build();
    let activation = Activation::new().json("self", &widget).json("oldSelf", &older);

    println!("{:>14} {:>9} {:>6}  rule", "evaluations/s", "ns", "cost");
    for rule in [
        "self.spec.replicas <= self.spec.max",
        "self.spec.min <= self.spec.replicas && self.spec.replicas <= self.spec.max",
        "self.spec.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "!has(self.spec.name) || self.spec.name == oldSelf.spec.name",
        "self.spec.ports.all(p, p.port > 0 && p.port < 65536)",
        "self.spec.ports.all(p, self.spec.ports.exists_one(q, q.name == p.name))",
        "self.spec.ports.map(p, p.port).isSorted()",
        "self.spec.labels.all(k, k in ['app', 'tier', 'track'])",
        "self.spec.schedule > timestamp('2020-01-01T00:00:00Z')",
        "quantity(self.spec.cpu).isLessThan(quantity('2'))",
        "self.spec.ports == oldSelf.spec.ports",
        "'replicas %d of %d'.format([self.spec.replicas, self.spec.max])",
    ] {
        let program = env.compile(rule)?;
        let mut budget = Budget::unlimited();
        program.evaluate(&activation, &mut budget)?;
        let cost = budget.used();
        let (mut count, start) = (0_u64, Instant::now());
        while start.elapsed() < MEASURED {
            for _ in 0..100 {
                std::hint::black_box(program.evaluate(&activation, &mut Budget::new(1_000_000))?);
            }
            count += 100;
        }
        let each_ns = start.elapsed().as_nanos() as f64 / count as f64;
        println!("{:>14.0} {each_ns:>9.0} {cost:>6}  {rule}", 1e9 / each_ns);
    }

    let (mut count, start) = (0_u64, Instant::now());
    while start.elapsed() < MEASURED {
        std::hint::black_box(env.compile("self.spec.ports.all(p, p.port > 0 && p.port < 65536)")?);
        count += 1;
    }
    println!("compilations/s: {:.0}", count as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    for _ in 0..100 {
        std::hint::black_box(Env::kubernetes(34).build());
    }
    println!("an environment from scratch: {} µs", start.elapsed().as_micros() / 100);
    Ok(())
}
