use events::stored::leaf_hash;
use proptest::prelude::*;

use super::*;
use crate::proof::tree::{self, consistency_nodes, inclusion_nodes};

fn leaf(number: u64) -> Hash {
    leaf_hash(&number.to_be_bytes())
}

/// A tree whose heads were signed at `sizes`, with every tile that was stored on the way; what it lacks are the last leaves.
fn stored(sizes: &[u64]) -> (Edge, Vec<Tile>) {
    let (mut edge, mut tiles) = (Edge::default(), Vec::new());
    for size in sizes {
        while edge.size() < *size {
            edge.push(leaf(edge.size()));
        }
        tiles.extend(edge.take_new());
    }
    (edge, tiles)
}

fn set(tiles: &[Tile]) -> TileSet {
    let mut set = TileSet::default();
    set.extend(tiles.iter().cloned());
    set
}

/// The root by pairs of leaves, without tiles.
fn plain_root(size: u64) -> Hash {
    fn range(first: u64, end: u64) -> Hash {
        if end - first == 1 {
            return leaf(first);
        }
        let half = 1 << (end - first - 1).ilog2();
        node_hash(&range(first, first + half), &range(first + half, end))
    }
    if size == 0 { tree::empty_root() } else { range(0, size) }
}

#[test]
fn paths_are_those_of_the_standard() {
    for (level, index, width, path) in [
        (0, 1_234_067, 256, "tile/0/x001/x234/067"),
        (0, 0, 256, "tile/0/000"),
        (1, 999, 1, "tile/1/999.p/1"),
        (2, 1000, 255, "tile/2/x001/000.p/255"),
        (0, (1 << 55) - 1, 256, "tile/0/x036/x028/x797/x018/x963/967"),
    ] {
        let id = TileId::try_new(level, index, width).unwrap();
        assert_eq!(id.to_string(), path);
        assert_eq!(path.parse::<TileId>().unwrap(), id);
    }
}

#[test]
fn other_ways_to_write_a_path_are_refused() {
    for path in [
        "",
        "tile",
        "tile/",
        "tile/0",
        "tile/0/",
        "tile/00/000",
        "tile/+0/000",
        "tile/8/000",
        "tile/256/000",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/+00",
        "tile/0/x000/000",
        "tile/0/001/000",
        "tile/0/x001/x000",
        "tile/0/x001",
        "tile/0/xx01/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000.p/1/",
        "tile/0/000.p",
        "tile/0/000.p/",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/../000",
        "tile/0/x036/x028/x797/x018/x963/968",
        "tile/7/x001/x000",
        "tile/0/x999/x999/x999/x999/x999/x999/x999/999",
    ] {
        assert_eq!(path.parse::<TileId>(), Err(TileError::Name), "{path:?}");
    }
}

#[test]
fn a_tile_of_another_length_is_refused() {
    let id = TileId::try_new(0, 0, 2).unwrap();
    for bytes in [0, 32, 63, 65, 96] {
        assert_eq!(Tile::from_bytes(id, &vec![0; bytes]), Err(TileError::Length { width: 2, bytes }));
    }
    let tile = Tile::from_bytes(id, &[leaf(0), leaf(1)].concat()).unwrap();
    assert_eq!((tile.hashes(), tile.to_bytes()), (&[leaf(0), leaf(1)][..], [leaf(0), leaf(1)].concat()));
}

#[test]
fn widths_follow_the_size() {
    let widths = |size| TileId::edge(size).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(widths(0), Vec::<String>::new());
    assert_eq!(widths(1), ["tile/0/000.p/1"]);
    assert_eq!(widths(255), ["tile/0/000.p/255"]);
    assert_eq!(widths(256), ["tile/1/000.p/1"]);
    assert_eq!(widths(257), ["tile/0/001.p/1", "tile/1/000.p/1"]);
    assert_eq!(widths(65_536), ["tile/2/000.p/1"]);
    assert_eq!(widths(70_000), ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]);
    assert_eq!(TileId::in_tree(0, 1, 256), None);
    assert_eq!(TileId::of(Node { level: 3, index: 1 }, 15), None);
    assert_eq!(TileId::of(Node { level: 63, index: u64::MAX }, u64::MAX), None);
    assert_eq!(TileId::edge((1 << 53) + 1).len(), 2);
}

#[test]
fn growing_stores_what_changed_and_nothing_twice() {
    let (_, tiles) = stored(&[3, 3, 256, 300, 511, 600, 601, 700]);
    let names: Vec<_> = tiles.iter().map(|tile| tile.id().to_string()).collect();
    assert_eq!(names, ["tile/0/000", "tile/1/000.p/1", "tile/0/001", "tile/1/000.p/2",]);
}

#[test]
fn a_third_level_begins_after_65536_leaves() {
    let (edge, tiles) = stored(&[65_535, 65_537, 66_000]);
    let mut set = set(&tiles);
    assert!(tree::root(66_000, &set).is_err());
    set.extend(edge.tiles().filter(|tile| tile.id().level() == 0));
    assert_eq!(edge.root(), plain_root(66_000));
    for size in [65_535, 65_536, 65_537, 65_800, 66_000] {
        assert_eq!(tree::root(size, &set), Ok(plain_root(size)), "{size}");
        assert_eq!(Edge::try_new(size, &set).unwrap().root(), plain_root(size), "{size}");
    }
    assert_eq!(set.get(2, 0).unwrap().hashes(), [plain_root(65_536)]);
    assert_eq!(set.get(2, 0).unwrap().id().first_leaf(1), 65_536);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever heads were signed on the way: every smaller tree has its root, resumes, and is proven, from needed tiles alone.
    #[test]
    fn any_size_is_read_from_the_tiles(steps in prop::collection::vec(1_u64..700, 1..5), a in any::<prop::sample::Index>(),
                                       b in any::<prop::sample::Index>()) {
        let sizes: Vec<u64> = steps.iter().scan(0, |sum, step| { *sum += step; Some(*sum) }).collect();
        let last = *sizes.last().unwrap();
        let (edge, tiles) = stored(&sizes);
        prop_assert_eq!(edge.root(), plain_root(last));
        let mut names: Vec<_> = tiles.iter().map(Tile::id).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), tiles.len());

        let mut all = set(&tiles);
        all.extend(edge.tiles().filter(|tile| tile.id().level() == 0));
        let size = a.index(usize::try_from(last).unwrap()) as u64 + 1;
        let index = b.index(usize::try_from(size).unwrap()) as u64;
        let only = |nodes: &[Node]| {
            let mut few = TileSet::default();
            few.extend(TileSet::needed(nodes, size).into_iter().map(|id| {
                let tile = all.get(id.level(), id.index()).unwrap();
                Tile { id, hashes: tile.hashes[..usize::from(id.width())].to_vec() }
            }));
            few
        };
        let root = tree::root(size, &only(&root_nodes(size))).unwrap();
        prop_assert_eq!(root, plain_root(size));
        let proof = tree::inclusion_proof(index, size, &only(&inclusion_nodes(index, size).unwrap())).unwrap();
        prop_assert_eq!(tree::verify_inclusion(&leaf(index), index, size, &proof, &root), Ok(()));
        let proof = tree::consistency_proof(index, size, &only(&consistency_nodes(index, size).unwrap())).unwrap();
        prop_assert_eq!(tree::verify_consistency(index, &plain_root(index), size, &root, &proof), Ok(()));

        let mut resumed = Edge::try_new(size, &all).unwrap();
        resumed.push(leaf(size));
        prop_assert_eq!(resumed.root(), plain_root(size + 1));
        prop_assert!(tree::root(size, &TileSet::default()).is_err());
        prop_assert!(Edge::try_new(size, &TileSet::default()).is_err());
    }
}
