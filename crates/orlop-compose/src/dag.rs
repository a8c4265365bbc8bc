//! A directed acyclic graph with a stable order.

use std::collections::BTreeMap;
use std::fmt;

/// Nodes with the nodes they depend on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dag {
    nodes: BTreeMap<String, Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    index: usize,
    dependencies: Vec<String>,
}

/// A cycle, as the path that closes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CycleError {
    /// Ids along the cycle; the first is repeated at the end.
    pub(crate) cycle: Vec<String>,
}

impl fmt::Display for CycleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cycle.as_slice() {
            [one, other] if one == other => f.write_str("self references are not allowed"),
            cycle => write!(f, "graph contains a cycle: {}", cycle.join(" -> ")),
        }
    }
}

impl std::error::Error for CycleError {}

impl Dag {
    /// Adds a node; `index` is its place among nodes that are ready at once.
    pub(crate) fn add_node(&mut self, id: &str, index: usize) {
        self.nodes.insert(id.to_owned(), Node { index, dependencies: Vec::new() });
    }

    /// Lets `from` depend on `to`. Both must have been added.
    pub(crate) fn add_edge(&mut self, from: &str, to: &str) -> Result<(), CycleError> {
        if from == to {
            return Err(CycleError { cycle: vec![from.to_owned(), to.to_owned()] });
        }
        if let Some(node) = self.nodes.get_mut(from)
            && !node.dependencies.iter().any(|known| known == to)
        {
            node.dependencies.push(to.to_owned());
        }
        Ok(())
    }

    /// The nodes that `id` depends on, in the order in which they were added.
    pub(crate) fn dependencies(&self, id: &str) -> &[String] {
        self.nodes.get(id).map_or(&[], |node| &node.dependencies)
    }

    /// Returns a topological order: always the ready node with the lowest index, then id.
    pub(crate) fn order(&self) -> Result<Vec<String>, CycleError> {
        let mut waiting: BTreeMap<(usize, &str), usize> = self
            .nodes
            .iter()
            .map(|(id, node)| ((node.index, id.as_str()), node.dependencies.len()))
            .collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some((index, id)) = waiting.iter().find(|(_, missing)| **missing == 0).map(|(key, _)| *key)
        {
            waiting.remove(&(index, id));
            for ((_, other), missing) in &mut waiting {
                if self.dependencies(other).iter().any(|dependency| dependency == id) {
                    *missing -= 1;
                }
            }
            order.push(id.to_owned());
        }
        match waiting.keys().next() {
            None => Ok(order),
            Some(_) => Err(self.find_cycle(waiting.keys().map(|(_, id)| *id).collect())),
        }
    }

    /// Follows dependencies among nodes that cannot be ordered until one repeats.
    fn find_cycle(&self, stuck: Vec<&str>) -> CycleError {
        let mut path: Vec<&str> = Vec::new();
        let mut next = stuck.first().copied();
        while let Some(id) = next {
            if let Some(start) = path.iter().position(|seen| *seen == id) {
                let mut cycle: Vec<String> = path[start..].iter().map(|id| (*id).to_owned()).collect();
                // The smallest id first, so that the text does not depend on where the walk began.
                let first =
                    cycle.iter().enumerate().min_by_key(|(_, id)| id.as_str()).map_or(0, |(at, _)| at);
                cycle.rotate_left(first);
                cycle.extend(cycle.first().cloned());
                return CycleError { cycle };
            }
            path.push(id);
            let dependencies = self.dependencies(id).iter();
            next = dependencies.map(String::as_str).find(|dependency| stuck.contains(dependency));
        }
        CycleError { cycle: Vec::new() }
    }

    /// Returns each node's deletion wave: peels nodes that nothing depends on; the last layer peeled is 1.
    pub(crate) fn waves(&self) -> BTreeMap<String, usize> {
        let mut layer_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut layer = 0;
        while layer_of.len() < self.nodes.len() {
            let left = |id: &str| !layer_of.contains_key(id);
            let peeled: Vec<&str> = self
                .nodes
                .keys()
                .map(String::as_str)
                .filter(|id| left(id))
                .filter(|id| {
                    !self.nodes.iter().any(|(other, node)| {
                        left(other) && node.dependencies.iter().any(|dependency| dependency == id)
                    })
                })
                .collect();
            if peeled.is_empty() {
                break;
            }
            layer += 1;
            for id in peeled {
                layer_of.insert(id, layer);
            }
        }
        layer_of.into_iter().map(|(id, at)| (id.to_owned(), layer - at + 1)).collect()
    }
}
